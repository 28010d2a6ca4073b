#include "runtime/node/daemon_main.h"

int main(int argc, char** argv) { return trainctl::DaemonMain(argc, argv); }
