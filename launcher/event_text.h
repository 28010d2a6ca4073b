// What happened to a job, from its journal, one line per record. PURE.
#ifndef TRAINCTL_LAUNCHER_EVENT_TEXT_H_
#define TRAINCTL_LAUNCHER_EVENT_TEXT_H_

#include <string>

#include "launcher/coordinator/journal_record.h"

namespace trainctl {

// Records that have no time of their own happened between those before and after them.
std::string EventLine(const JournalRecord& record);  // for people, with the time first, or blanks
std::string EventJson(const JournalRecord& record);  // type "event"

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_EVENT_TEXT_H_
