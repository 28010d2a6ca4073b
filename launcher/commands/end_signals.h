// The signals that ask a front end to end.
#ifndef TRAINCTL_LAUNCHER_COMMANDS_END_SIGNALS_H_
#define TRAINCTL_LAUNCHER_COMMANDS_END_SIGNALS_H_

#include <csignal>
#include <functional>

#include "runtime/base/loop.h"

namespace trainctl {

// Calls `on_signal` on the loop's thread. Those that whoever started us had ignored (nohup, a
// shell's background) stay ignored.
inline void OnEndSignals(Loop* loop, const std::function<void(int signo)>& on_signal) {
  for (const int signo : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    if (sigaction(signo, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) continue;
    loop->OnSignal(signo, [on_signal, signo](int) { on_signal(signo); });
  }
}

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_COMMANDS_END_SIGNALS_H_
