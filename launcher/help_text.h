// What users read about the command line: help, completion scripts, the manual page. Pure.
#ifndef TRAINCTL_LAUNCHER_HELP_TEXT_H_
#define TRAINCTL_LAUNCHER_HELP_TEXT_H_

#include <string>
#include <vector>

#include "launcher/command_line.h"

namespace trainctl {

struct VerbLine {
  const char* name;
  const char* usage;
  const char* summary;
  const char* example;
};
const std::vector<VerbLine>& VerbLines();

std::string ProgramHelp();  // trainctl --help
std::string VerbHelp(const VerbText& verb);
std::string BashCompletion(const std::vector<VerbText>& verbs);
std::string ZshCompletion(const std::vector<VerbText>& verbs);
std::string ManualPage(const std::vector<VerbText>& verbs);  // roff, section 1

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_HELP_TEXT_H_
