// One line of text per record and action.
#ifndef TRAINCTL_TESTS_SCENARIO_PRINT_H_
#define TRAINCTL_TESTS_SCENARIO_PRINT_H_

#include <string>

#include "launcher/coordinator/action.h"
#include "launcher/coordinator/coordinator.h"
#include "launcher/coordinator/journal_record.h"

namespace trainctl {

std::string Print(const JournalRecord& record);
std::string Print(const Action& action);
std::string Print(const NodeView& node);
std::string Print(Duration duration);

}  // namespace trainctl

#endif  // TRAINCTL_TESTS_SCENARIO_PRINT_H_
