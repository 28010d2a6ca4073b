// First in every function of a service that gRPC calls. Costs nothing, except under
// ThreadSanitizer. That does not see how gRPC's own locks order memory, so reports with one of
// gRPC's functions on the stack are suppressed (tests/tsan.supp), and gRPC is below every such
// function. In this scope the stack is a fresh one, and a race of ours is reported.
#ifndef TRAINCTL_RUNTIME_RPC_CALL_SCOPE_H_
#define TRAINCTL_RUNTIME_RPC_CALL_SCOPE_H_

#if defined(__SANITIZE_THREAD__)
#define TRAINCTL_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TRAINCTL_UNDER_TSAN 1
#endif
#endif

#ifdef TRAINCTL_UNDER_TSAN
// From <sanitizer/tsan_interface.h>, which not every compiler installs.
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);  // flags 0: what came before is seen
}
#endif

namespace trainctl {

#ifdef TRAINCTL_UNDER_TSAN
class CallScope {
 public:
  // Inlined without instrumentation: a function that is entered on one stack and left on another
  // would unbalance both.
  [[gnu::always_inline]] __attribute__((no_sanitize_thread)) CallScope()
      : below_(__tsan_get_current_fiber()) {
    static thread_local void* const own = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(own, 0);
  }
  [[gnu::always_inline]] __attribute__((no_sanitize_thread)) ~CallScope() {
    __tsan_switch_to_fiber(below_, 0);
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  void* below_;
};
#else
struct CallScope {
  CallScope() {}
};
#endif

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_CALL_SCOPE_H_
