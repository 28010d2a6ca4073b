#include "launcher/split_words.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "launcher/suggest.h"
#include "runtime/base/status.h"

namespace trainctl {
namespace {

// Flags whose default is the empty text for torchrun: scripts that wrap it pass that on.
constexpr std::array kMayBeEmpty = {"--local-ranks-filter", "--rdzv-endpoint",
                                    "--rdzv-conf",          "--rdzv-id",
                                    "--master-addr",        "--local-addr"};

std::vector<std::string> FlagNames(const CLI::App& app) {
  std::vector<std::string> names = {"--help"};
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back(absl::StrCat("--", name));
    }
  }
  return names;
}

const CLI::Option* FindFlag(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->check_name(name)) {
      return option;
    }
  }
  return nullptr;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_min() > 0; }
bool MayTakeValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// One flag as it was typed, and where its value is if it has one.
struct TypedFlag {
  std::string name;  // with hyphens
  bool is_long = false;
  bool has_value = false;
  std::string value;
};

TypedFlag ReadFlag(const std::string& word) {
  TypedFlag flag;
  flag.is_long = word[1] == '-';
  const size_t equals = word.find('=');
  flag.name = flag.is_long ? word.substr(0, equals) : word.substr(0, 2);
  if (flag.is_long) {
    absl::StrReplaceAll({{"_", "-"}}, &flag.name);
    flag.has_value = equals != std::string::npos;
    flag.value = flag.has_value ? word.substr(equals + 1) : "";
  } else {
    flag.has_value = word.size() > 2;
    flag.value = word.substr(2);
  }
  return flag;
}

// Puts the flag before the parser; `*at` moves on if its value is the next word.
absl::Status TakeFlag(const CLI::App& app, const std::vector<std::string>& words, size_t* at,
                      SplitWords* split) {
  TypedFlag flag = ReadFlag(words[*at]);
  const CLI::Option* option = FindFlag(app, flag.name);
  if (option == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("unknown flag ", flag.name.substr(0, 100),
                                                   DidYouMean(flag.name, FlagNames(app))));
  }
  split->json = split->json || flag.name == "--json";
  if (flag.has_value && flag.is_long && !MayTakeValue(*option)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag.name, " takes no value, found \"", flag.value.substr(0, 100), "\""));
  }
  if (!TakesValue(*option)) {
    split->flags.push_back(flag.is_long && flag.has_value ? absl::StrCat(flag.name, "=", flag.value)
                           : flag.is_long                 ? flag.name
                                                          : words[*at]);
    return absl::OkStatus();
  }
  if (!flag.has_value && *at + 1 == words.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag.name, " needs a value: ", option->get_type_name()));
  }
  if (!flag.has_value) {
    flag.value = words[++*at];
  }
  if (flag.value.empty()) {
    const bool allowed =
        std::find(kMayBeEmpty.begin(), kMayBeEmpty.end(), flag.name) != kMayBeEmpty.end();
    return allowed ? absl::OkStatus()
                   : absl::InvalidArgumentError(absl::StrCat(
                         flag.name, ": the value is empty, expected ", option->get_type_name()));
  }
  // Joined to its flag, a value that looks like a flag ("-1") stays a value.
  split->flags.push_back(absl::StrCat(flag.name, flag.is_long ? "=" : "", flag.value));
  return absl::OkStatus();
}

// A switch in the environment that says neither yes nor no.
absl::Status CheckSwitches(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::string& name = option->get_envname();
    const char* found = name.empty() || MayTakeValue(*option) ? nullptr : std::getenv(name.c_str());
    if (found == nullptr) {
      continue;
    }
    const std::string text = absl::AsciiStrToLower(found);
    const std::array kKnown = {"", "0", "1", "false", "true", "no", "yes", "off", "on"};
    if (std::find(kKnown.begin(), kKnown.end(), text) == kKnown.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": found \"", text.substr(0, 100), "\", expected 1 or 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status Missing(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_required() && option->count() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          option->get_name(/*positional=*/true),
          " is missing: ", absl::AsciiStrToLower(option->get_description().substr(0, 1)),
          option->get_description().substr(1), "; trainctl ", app.get_name(),
          " --help shows more"));
    }
  }
  return absl::InvalidArgumentError("something is missing");
}

}  // namespace

absl::Status Split(const CLI::App& app, const std::vector<std::string>& words, bool stop_at_program,
                   SplitWords* split) {
  absl::Status problem;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word.size() < 2 || word[0] != '-') {
      if (stop_at_program) {
        split->rest.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
        return problem;
      }
      split->flags.push_back(word);
    } else if (word == "--") {
      split->rest.assign(words.begin() + static_cast<std::ptrdiff_t>(i) + 1, words.end());
      return problem;
    } else if (word == "--help" || word == "-h") {
      split->help = true;
    } else {
      problem.Update(TakeFlag(app, words, &i, split));
    }
  }
  return problem;
}

absl::Status RunParser(CLI::App* app, std::vector<std::string> words) {
  RETURN_IF_ERROR(CheckSwitches(*app));
  std::reverse(words.begin(), words.end());  // as CLI11 wants it
  try {
    app->parse(words);
  } catch (const CLI::RequiredError&) {
    return Missing(*app);
  } catch (const CLI::ExtrasError&) {
    return absl::InvalidArgumentError(
        absl::StrCat("found \"", absl::StrJoin(app->remaining(), " "), "\" where trainctl ",
                     app->get_name(), " expects nothing more; its --help shows what it takes"));
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

}  // namespace trainctl
