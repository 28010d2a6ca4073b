// CHECK for broken invariants, on in every build. Never for input: the wire, the disk, the
// environment, user programs and hardware are input and end in a Status.
#ifndef TRAINCTL_RUNTIME_BASE_CHECK_H_
#define TRAINCTL_RUNTIME_BASE_CHECK_H_

namespace trainctl {

// Writes "file:line: CHECK failed: expression" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* expression);

}  // namespace trainctl

#define CHECK(expression) \
  ((expression) ? (void)0 : ::trainctl::CheckFailed(__FILE__, __LINE__, #expression))

#endif  // TRAINCTL_RUNTIME_BASE_CHECK_H_
