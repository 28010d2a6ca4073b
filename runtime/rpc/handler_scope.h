// First in whatever gRPC calls: handlers of services and reactions of streams. Costs nothing,
// except under ThreadSanitizer, which does not see how gRPC's own locks order memory: reports with
// one of gRPC's functions on the stack are therefore suppressed (tests/tsan.supp), and gRPC is
// below every handler. In this scope the stack is a fresh one, so that a race of a handler is
// reported.
#ifndef TRAINCTL_RUNTIME_RPC_HANDLER_SCOPE_H_
#define TRAINCTL_RUNTIME_RPC_HANDLER_SCOPE_H_

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
class HandlerScope {
 public:
  // Inlined without instrumentation: a function that is entered on one stack and left on another
  // would unbalance both.
  [[gnu::always_inline]] __attribute__((no_sanitize_thread)) HandlerScope()
      : below_(__tsan_get_current_fiber()) {
    static thread_local void* const own = __tsan_create_fiber(0);
    __tsan_switch_to_fiber(own, 0);
  }
  [[gnu::always_inline]] __attribute__((no_sanitize_thread)) ~HandlerScope() {
    __tsan_switch_to_fiber(below_, 0);
  }
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;

 private:
  void* below_;
};
#else
struct HandlerScope {
  HandlerScope() {}
};
#endif

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_RPC_HANDLER_SCOPE_H_
