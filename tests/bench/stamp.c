// Writes the time at which its main began, first thing, for the launch and restart benchmarks.
//   stamp FOLDER [wait]   writes FOLDER/EPOCH.RANK: CLOCK_MONOTONIC in nanoseconds and the pid
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char** argv) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  const char* rank = getenv("RANK");
  const char* epoch = getenv("TORCHELASTIC_RESTART_COUNT");
  if (argc < 2 || rank == NULL || epoch == NULL) {
    fprintf(stderr, "usage: stamp FOLDER [wait], started by a launcher\n");
    return 2;
  }
  char path[4096], unfinished[4100];
  snprintf(path, sizeof path, "%s/%s.%s", argv[1], epoch, rank);
  snprintf(unfinished, sizeof unfinished, "%s.new", path);
  FILE* file = fopen(unfinished, "w");
  if (file == NULL) return 1;
  fprintf(file, "%lld %d\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec, (int)getpid());
  if (fclose(file) != 0 || rename(unfinished, path) != 0) return 1;
  if (argc > 2 && strcmp(argv[2], "wait") == 0) pause();
  return 0;
}
