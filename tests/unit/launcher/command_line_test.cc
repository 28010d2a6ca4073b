#include "launcher/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "launcher/help_text.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

LaunchFlags Launch(Words words) {
  words.insert(words.begin(), "launch");
  absl::StatusOr<CommandLine> line = ParseCommandLine(words);
  EXPECT_TRUE(line.ok()) << line.status();
  return line.ok() ? line->launch : LaunchFlags();
}

std::string Refusal(const Words& words) {
  return std::string(ParseCommandLine(words).status().message());
}

TEST(CommandLine, LeavesTheProgramsArgumentsAlone) {
  const LaunchFlags flags = Launch({"--nproc-per-node", "2", "train.py", "--lr", "0.1", "--help",
                                    "--nproc_per_node=9", "-m", "--"});
  EXPECT_EQ(flags.nproc_per_node, "2");
  EXPECT_FALSE(flags.module);
  EXPECT_THAT(flags.program,
              ElementsAre("train.py", "--lr", "0.1", "--help", "--nproc_per_node=9", "-m", "--"));
}

TEST(CommandLine, EndsTheFlagsAtADoubleHyphen) {
  EXPECT_THAT(Launch({"--standalone", "--", "-strange-name", "--x"}).program,
              ElementsAre("-strange-name", "--x"));
}

TEST(CommandLine, TakesUnderscoresForHyphensInNamesOnly) {
  const LaunchFlags flags = Launch({"--nproc_per_node=3", "--rdzv_id", "my_run", "p"});
  EXPECT_EQ(flags.nproc_per_node, "3");
  EXPECT_EQ(flags.rdzv_id, "my_run");
}

TEST(CommandLine, TakesValuesThatLookLikeFlags) {
  EXPECT_EQ(Launch({"--nproc-per-node", "-1", "p"}).nproc_per_node, "-1");
  EXPECT_EQ(Launch({"-r", "3", "p"}).redirects, "3");
  EXPECT_EQ(Launch({"-r3", "p"}).redirects, "3");
}

TEST(CommandLine, GivesTheLocalRankArgumentANameOnlyAfterAnEqualsSign) {
  const LaunchFlags plain = Launch({"--local-rank-arg", "train.py"});
  EXPECT_EQ(plain.local_rank_arg, "local-rank");
  EXPECT_THAT(plain.program, ElementsAre("train.py"));
  EXPECT_EQ(Launch({"--local-rank-arg=local_rank", "train.py"}).local_rank_arg, "local_rank");
  EXPECT_FALSE(Launch({"train.py"}).local_rank_arg.has_value());
}

TEST(CommandLine, TakesTorchrunsFlagsFromTheEnvironmentAndPrefersTheFlag) {
  setenv("PET_NPROC_PER_NODE", "5", 1);
  setenv("PET_STANDALONE", "1", 1);
  setenv("PET_NO_PYTHON", "0", 1);
  EXPECT_EQ(Launch({"p"}).nproc_per_node, "5");
  EXPECT_TRUE(Launch({"p"}).standalone);
  EXPECT_FALSE(Launch({"p"}).no_python);
  EXPECT_EQ(Launch({"--nproc-per-node", "2", "p"}).nproc_per_node, "2");
  setenv("PET_STANDALONE", "perhaps", 1);
  EXPECT_THAT(Refusal({"launch", "p"}), HasSubstr("PET_STANDALONE"));
  EXPECT_TRUE(ParseCommandLine({"list"}).ok());
  unsetenv("PET_NPROC_PER_NODE");
  unsetenv("PET_STANDALONE");
  unsetenv("PET_NO_PYTHON");
}

TEST(CommandLine, NamesTheNearestVerbOrFlag) {
  EXPECT_EQ(Refusal({"lauch", "x"}), "unknown verb lauch; did you mean launch?");
  EXPECT_EQ(Refusal({"launch", "--nproc_per_nod", "2", "x"}),
            "unknown flag --nproc-per-nod; did you mean --nproc-per-node?");
  EXPECT_EQ(Refusal({"logs", "x", "--folow"}), "unknown flag --folow; did you mean --follow?");
}

TEST(CommandLine, RefusesWhatIsMissing) {
  EXPECT_THAT(Refusal({}), HasSubstr("no verb"));
  EXPECT_THAT(Refusal({"launch"}), HasSubstr("nothing to run"));
  EXPECT_THAT(Refusal({"launch", "--name"}), HasSubstr("--name needs a value"));
  EXPECT_THAT(Refusal({"status"}), HasSubstr("JOB"));
  EXPECT_FALSE(ParseCommandLine({"status", "a", "b"}).ok());
  EXPECT_FALSE(ParseCommandLine({"completion", "fish"}).ok());
  EXPECT_FALSE(ParseCommandLine({"topo", "--json", "--yaml"}).ok());
}

TEST(CommandLine, ReadsTheVerbsOnJobs) {
  const CommandLine logs =
      *ParseCommandLine({"logs", "-f", "night", "--rank", "0,2", "--grep", "-x"});
  EXPECT_EQ(logs.job.job, "night");
  EXPECT_TRUE(logs.job.follow);
  EXPECT_EQ(logs.job.ranks, "0,2");
  EXPECT_EQ(logs.job.grep, "-x");
  EXPECT_TRUE(ParseCommandLine({"stop", "night", "--checkpoint"})->job.checkpoint);
  EXPECT_EQ(ParseCommandLine({"signal", "night", "USR1"})->job.signal, "USR1");
}

TEST(Help, ShowsEveryVerbAndEveryFlagWithAnExample) {
  for (const VerbText& verb : DescribeVerbs()) {
    EXPECT_THAT(ProgramHelp(), HasSubstr(verb.usage));
    const CommandLine line = *ParseCommandLine({verb.name, "--help"});
    EXPECT_THAT(line.help, HasSubstr(verb.example));
    for (const FlagText& flag : verb.flags) {
      EXPECT_THAT(line.help, HasSubstr(flag.names.back()));
      EXPECT_FALSE(flag.meaning.empty());
    }
  }
}

TEST(Help, FitsTheTerminal) {
  for (const VerbText& verb : DescribeVerbs()) {
    std::string line;
    for (char c : VerbHelp(verb) + ProgramHelp()) {
      if (c != '\n') {
        line += c;
        continue;
      }
      EXPECT_LE(line.size(), 110u) << line;
      line.clear();
    }
  }
}

TEST(Completion, KnowsEveryFlag) {
  const std::vector<VerbText> verbs = DescribeVerbs();
  for (const std::string& script :
       {BashCompletion(verbs), ZshCompletion(verbs), ManualPage(verbs)}) {
    EXPECT_THAT(script, HasSubstr("launch"));
  }
  EXPECT_THAT(BashCompletion(verbs), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(ZshCompletion(verbs), HasSubstr("--nproc-per-node"));
  EXPECT_THAT(ManualPage(verbs), HasSubstr("\\-\\-nproc\\-per\\-node N|gpu|cpu|auto"));
}

TEST(CommandLine, SaysInItsOwnWordsWhatIsWrong) {
  EXPECT_EQ(Refusal({""}), "the verb is empty; trainctl --help shows them");
  EXPECT_EQ(Refusal({"launch", "--nproc-per-node", "", "x"}),
            "--nproc-per-node: the value is empty, expected N|gpu|cpu|auto");
  EXPECT_EQ(Refusal({"launch", "--nproc-per-node=", "x"}),
            "--nproc-per-node: the value is empty, expected N|gpu|cpu|auto");
  EXPECT_EQ(Refusal({"launch", "--grace"}), "--grace needs a value: TIME");
  EXPECT_THAT(Refusal({"launch", "--nprocs", "2", "x"}),
              HasSubstr("did you mean --nproc-per-node?"));
  EXPECT_EQ(Refusal({"list", "--json=yes"}), "--json takes no value, found \"yes\"");
  EXPECT_EQ(Refusal({"completion", "fish"}), "completion: found \"fish\", expected bash or zsh");
  EXPECT_EQ(Refusal({"status"}),
            "JOB is missing: id of a job, the beginning of one, or a name; trainctl status --help "
            "shows more");
  EXPECT_THAT(Refusal({"list", "a", "b"}), HasSubstr("found \"a b\" where trainctl list expects"));
  setenv("PET_NO_PYTHON", "perhaps", 1);
  EXPECT_EQ(Refusal({"launch", "x"}), "PET_NO_PYTHON: found \"perhaps\", expected 1 or 0");
  unsetenv("PET_NO_PYTHON");
}

TEST(CommandLine, OfAFlagGivenTwiceTheLastCounts) {
  const CommandLine line = *ParseCommandLine(
      {"launch", "--name", "a", "--local-rank-arg=x", "--local-rank-arg", "--name=b", "x"});
  EXPECT_EQ(line.launch.name, "b");
  EXPECT_EQ(line.launch.local_rank_arg, "local-rank");
}

TEST(CommandLine, TakesTheEmptyValuesThatTorchrunTakes) {
  const CommandLine line =
      *ParseCommandLine({"launch", "--rdzv_endpoint=", "--local-ranks-filter", "", "x"});
  EXPECT_FALSE(line.launch.rdzv_endpoint.has_value());
  EXPECT_FALSE(line.launch.local_ranks_filter.has_value());
}

TEST(CommandLine, KnowsWhetherAWrongCommandAsksForJson) {
  EXPECT_TRUE(AsksForJson({"lanch", "--json", "x"}));
  EXPECT_TRUE(AsksForJson({"launch", "--bad", "--name", "a", "--json", "x"}));
  EXPECT_TRUE(AsksForJson({"status", "--json"}));
  EXPECT_FALSE(AsksForJson({"launch", "x", "--json"}));
  EXPECT_FALSE(AsksForJson({"launch", "--name", "--json", "x"}));
  EXPECT_FALSE(AsksForJson({}));
}

}  // namespace
}  // namespace trainctl
