// Scenario files: commands to one coordinator and what it answers to each.
//
//   # comment, kept
//   > COMMAND ARGUMENT name=value
//     persist …     what must be durable
//     do …          what is performed after that
//     state …       the phase and Explain()
//
// Commands (durations as "5s" or "500ms"; `tail="…"` may hold blanks and \n):
//   job name=value…        before start: min_nodes max_nodes spares nodes=NAME,… in_order
//                          workers=N|all max_restarts window_restarts restart_window
//                          no_progress grace lease join_timeout orphan_timeout checkpoint keep
//                          propagate requeue preemptible
//   start | crash          a new coordinator | a new life of it, replayed from what it persisted
//   join NODE [incarnation= machine= address=A,… topology= node_rank= port= slots= epoch= term=
//              alive running=R,… exited=R:CODE,…]
//   leave NODE [incarnation= reason=] | mute NODE     (a muted node asks for no lease)
//   lease NODE [incarnation=]
//   reached NODE [ADDRESS[/OWN]…] [probe=]   | meet   (all that were asked reach every address)
//   drain NODE | undrain NODE | view         (view shows where every node stands)
//   started NODE [epoch= port=] | gone NODE [epoch=]
//   exit NODE rank= (code= | signal= | errno= | lost) [epoch= by_us at= tail= json= message=]
//   step N [total= epoch=] | shard N rank= [epoch=] | published N | rejected N | found [N…]
//   suspect NODE rank= [step= reason=] | diagnosed NODE rank= steps= collectives= [waits= stopped=]
//   unfit NODE [reason=]
//   stop [checkpoint] [now] [notice] [by=] | watch N
//   tick DURATION          time passes; connected nodes ask for their lease, deadlines are
//   delivered
#ifndef TRAINCTL_TESTS_SCENARIO_SCENARIO_H_
#define TRAINCTL_TESTS_SCENARIO_SCENARIO_H_

#include <string>

namespace trainctl {

// `text` with the answers replaced by those of the coordinator as it is now. A command that cannot
// be read is answered by a line "error …".
std::string PlayScenario(const std::string& text);

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_SCENARIO_SCENARIO_H_
