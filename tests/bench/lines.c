// Lines for the benchmark of output: written in parts, copied plainly, read and checked.
//   lines write BYTES_PER_S SECONDS TICK_MS   to stdout; a line is "RANK SEQ filler NANOSECONDS"
//   lines copy FOLDER N WORD...               N times WORD..., each one's stdout to FOLDER/I
//   lines read                                stdin; what it found, as JSON, on stderr; latencies
//                                             without those of the first second
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { kMostRanks = 4096, kBuckets = 100000, kTail = 21 };

static int64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int Filler(long seq) { return 20 + (int)(seq * 7919 % 160); }

static int WriteFully(const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = write(1, data, size);
    if (n < 0 && errno != EINTR) return 0;
    if (n > 0) data += n, size -= (size_t)n;
  }
  return 1;
}

// The time is written in one piece with the end of its line: it is when the line was complete.
static int Write(const char* rank, double rate, double seconds, int64_t tick_ns) {
  const size_t room = (size_t)(rate * (double)tick_ns * 1e-9);
  char* chunk = malloc(room + kTail);
  char body[512];
  size_t length = 0, done = 0;
  long seq = 0;
  const int64_t begin = Now();
  for (int64_t tick = 0; tick * tick_ns < (int64_t)(seconds * 1e9); ++tick) {
    const int64_t due = begin + tick * tick_ns;
    const struct timespec at = {due / 1000000000, due % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) {
    }
    const int64_t now = Now();
    size_t size = 0;
    for (;;) {
      if (length == 0) {
        length = (size_t)snprintf(body, sizeof body, "%s %ld ", rank, seq);
        memset(body + length, 'x', (size_t)Filler(seq));
        length += (size_t)Filler(seq);
        done = 0;
      }
      size_t part = length - done;
      if (part > room - size) part = room - size;
      memcpy(chunk + size, body + done, part);
      size += part, done += part;
      if (done < length || room - size < kTail) break;
      snprintf(chunk + size, kTail + 1, " %019lld", (long long)now);
      chunk[size + kTail - 1] = '\n';
      size += kTail, length = 0, ++seq;
    }
    if (!WriteFully(chunk, size)) return 1;
  }
  char end[32];
  snprintf(end, sizeof end, " %019lld", (long long)Now());
  end[kTail - 1] = '\n';
  if (length > 0) WriteFully(body + done, length - done), WriteFully(end, kTail);
  free(chunk);
  return 0;
}

static int Copy(const char* folder, int count, char** words) {
  static char buffer[65536];
  int* files = calloc((size_t)count, sizeof(int));
  int* pipes = calloc((size_t)count, sizeof(int));
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < count; ++i) {
    int ends[2];
    char path[4096], rank[16];
    snprintf(path, sizeof path, "%s/%d", folder, i);
    snprintf(rank, sizeof rank, "%d", i);
    if (pipe2(ends, O_CLOEXEC) != 0) return 1;
    if (fork() == 0) {
      dup2(ends[1], 1);
      setenv("RANK", rank, 1);
      execv(words[0], words);
      _exit(127);
    }
    close(ends[1]);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    pipes[i] = ends[0];
    files[i] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    struct epoll_event event = {EPOLLIN, {.u32 = (uint32_t)i}};
    epoll_ctl(poll, EPOLL_CTL_ADD, ends[0], &event);
  }
  for (int open_pipes = count; open_pipes > 0;) {
    struct epoll_event events[64];
    const int n = epoll_wait(poll, events, 64, -1);
    for (int e = 0; e < n; ++e) {
      const uint32_t i = events[e].data.u32;
      for (;;) {
        const ssize_t got = read(pipes[i], buffer, sizeof buffer);
        if (got > 0 && write(files[i], buffer, (size_t)got) != got) return 1;
        if (got > 0) continue;
        if (got == 0) close(pipes[i]), --open_pipes;
        break;
      }
    }
  }
  while (wait(NULL) > 0) {
  }
  return 0;
}

static long next_seq[kMostRanks];
static long buckets[kBuckets + 1];  // latency in units of 10 microseconds, from measured_from on
static int64_t measured_from;
static long measured;

static int Check(const char* line, size_t length, int64_t now) {
  const char* text = memmem(line, length, "] ", 2);
  if (text == NULL || length < kTail) return 0;
  text += 2;
  char* after;
  const long rank = strtol(text, &after, 10);
  const long seq = strtol(after, &after, 10);
  if (rank < 0 || rank >= kMostRanks || *after != ' ' || seq != next_seq[rank]) return 0;
  ++next_seq[rank];
  const char* tail = after + 1 + Filler(seq);
  if (tail + kTail - 1 != line + length || strspn(after + 1, "x") != (size_t)Filler(seq)) return 0;
  const int64_t complete = strtoll(tail, NULL, 10);
  if (measured_from == 0) measured_from = complete + 1000000000;
  if (complete < measured_from) return 1;
  ++measured;
  int64_t bucket = (now - complete) / 10000;
  if (bucket < 0) bucket = 0;
  ++buckets[bucket < kBuckets ? bucket : kBuckets];
  return 1;
}

static double Quantile(double share, long lines) {
  long left = (long)(share * (double)lines);
  for (int i = 0; i <= kBuckets; ++i) {
    left -= buckets[i];
    if (left <= 0) return (i + 1) * 0.01;
  }
  return 0;
}

static int Read(void) {
  enum { kRoom = 1 << 22 };
  char* data = malloc(kRoom + 1);
  size_t size = 0;
  long lines = 0, torn = 0;
  for (;;) {
    const ssize_t n = read(0, data + size, kRoom - size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    const int64_t now = Now();
    size += (size_t)n;
    char* line = data;
    char* end;
    while ((end = memchr(line, '\n', size - (size_t)(line - data))) != NULL) {
      *end = '\0';
      if (!Check(line, (size_t)(end - line), now)) {
        if (++torn <= 3) fprintf(stderr, "torn: %.300s\n", line);
      }
      ++lines;
      line = end + 1;
    }
    size -= (size_t)(line - data);
    memmove(data, line, size);
  }
  fprintf(stderr, "{\"lines\": %ld, \"torn\": %ld, \"left\": %zu, \"p50\": %.2f, \"p99\": %.2f, \"p999\": %.2f}\n", lines,
          torn, size, Quantile(0.5, measured), Quantile(0.99, measured), Quantile(0.999, measured));
  return 0;
}

int main(int argc, char** argv) {
  const char* rank = getenv("RANK");
  if (argc == 5 && strcmp(argv[1], "write") == 0 && rank != NULL) {
    return Write(rank, atof(argv[2]), atof(argv[3]), (int64_t)(atof(argv[4]) * 1e6));
  }
  if (argc > 4 && strcmp(argv[1], "copy") == 0) return Copy(argv[2], atoi(argv[3]), argv + 4);
  if (argc == 2 && strcmp(argv[1], "read") == 0) return Read();
  fprintf(stderr, "usage: lines write BYTES_PER_S SECONDS TICK_MS | copy FOLDER N WORD... | read\n");
  return 2;
}
