#include "launcher/coordinator_main.h"

int main(int argc, char** argv) { return trainctl::CoordinatorMain(argc, argv); }
