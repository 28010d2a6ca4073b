// What happened to a job, from its journal, one line per record. PURE.
#ifndef TRAINCTL_LAUNCHER_EVENT_TEXT_H_
#define TRAINCTL_LAUNCHER_EVENT_TEXT_H_

#include <string>

#include "launcher/coordinator/journal_record.h"

namespace trainctl {

// Records that have no time of their own happened between those before and after them.
// For people, with the time first, or blanks; empty for what happens all the time (a step whose
// shards are written, a checkpoint that is no longer kept).
std::string EventLine(const JournalRecord& record);
std::string EventJson(const JournalRecord& record);  // type "event"

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_EVENT_TEXT_H_
