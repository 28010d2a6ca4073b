#include "runtime/supervisor/slot.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace trainctl {
namespace {

struct Cell {
  SlotPhase next = SlotPhase::kEmpty;
  SlotAction action = SlotAction::kNone;
  const char* reason = nullptr;
};
using Row = std::array<Cell, kSlotEvents>;
using Table = std::array<Row, kSlotPhases>;

constexpr Cell Go(SlotPhase next, SlotAction action, const char* reason) {
  return Cell{next, action, reason};
}
constexpr Cell Stay(SlotPhase phase, const char* reason) {
  return Cell{phase, SlotAction::kNone, reason};
}
constexpr Cell Refuse(SlotPhase phase, const char* reason) {
  return Cell{phase, SlotAction::kRefuse, reason};
}

// Columns, in the order of SlotEvent: forked, fork failed, executed, exec failed, reaped,
// stop requested, kill requested, grace over.
constexpr Table MakeTable() {
  using enum SlotPhase;
  using enum SlotAction;
  Table t{};
  t[static_cast<size_t>(kEmpty)] = {
      Go(kSpawning, kNone, "a child was forked"),
      Go(kExited, kReport, "no child could be forked"),
      Refuse(kEmpty, "nothing was forked that could execute"),
      Refuse(kEmpty, "nothing was forked that could fail to execute"),
      Refuse(kEmpty, "nothing was forked that could be reaped"),
      Stay(kEmpty, "no process to stop"),
      Stay(kEmpty, "no process to kill"),
      Stay(kEmpty, "no grace is running"),
  };
  t[static_cast<size_t>(kSpawning)] = {
      Refuse(kSpawning, "the slot already has a child"),
      Refuse(kSpawning, "the slot already has a child"),
      Go(kRunning, kNone, "the program is running"),
      Go(kFailing, kNone, "the program could not be executed"),
      Go(kExited, kReport, "the child ended before its exec was seen"),
      Go(kTerminating, kTerminate, "stop requested while spawning"),
      Go(kKilling, kKill, "kill requested while spawning"),
      Stay(kSpawning, "no grace is running"),
  };
  t[static_cast<size_t>(kRunning)] = {
      Refuse(kRunning, "the slot already has a child"),
      Refuse(kRunning, "the slot already has a child"),
      Refuse(kRunning, "the program already runs"),
      Refuse(kRunning, "the program already runs"),
      Go(kExited, kReport, "the worker ended by itself"),
      Go(kTerminating, kTerminate, "stop requested"),
      Go(kKilling, kKill, "kill requested"),
      Stay(kRunning, "no grace is running"),
  };
  t[static_cast<size_t>(kTerminating)] = {
      Refuse(kTerminating, "the slot already has a child"),
      Refuse(kTerminating, "the slot already has a child"),
      Stay(kTerminating, "already asked to end"),
      Go(kFailing, kNone, "the program could not be executed"),
      Go(kExited, kReport, "the worker ended within its grace"),
      Stay(kTerminating, "already asked to end; the shorter grace holds"),
      Go(kKilling, kKill, "kill requested within the grace"),
      Go(kKilling, kKill, "the grace is over"),
  };
  t[static_cast<size_t>(kKilling)] = {
      Refuse(kKilling, "the slot already has a child"),
      Refuse(kKilling, "the slot already has a child"),
      Stay(kKilling, "already killed"),
      Stay(kKilling, "already killed"),
      Go(kExited, kReport, "the worker was killed"),
      Stay(kKilling, "already killed"),
      Stay(kKilling, "already killed"),
      Stay(kKilling, "already killed"),
  };
  t[static_cast<size_t>(kFailing)] = {
      Refuse(kFailing, "the slot already has a child"),
      Refuse(kFailing, "the slot already has a child"),
      Refuse(kFailing, "exec already failed"),
      Refuse(kFailing, "exec already failed"),
      Go(kExited, kReport, "the child ended after its exec failed"),
      Stay(kFailing, "the child is ending by itself"),
      Go(kKilling, kKill, "kill requested"),
      Stay(kFailing, "the child is ending by itself"),
  };
  t[static_cast<size_t>(kExited)] = {
      Refuse(kExited, "a slot is used once"),
      Refuse(kExited, "a slot is used once"),
      Refuse(kExited, "the worker is gone"),
      Refuse(kExited, "the worker is gone"),
      Refuse(kExited, "the worker is already reaped"),
      Stay(kExited, "the worker is gone"),
      Stay(kExited, "the worker is gone"),
      Stay(kExited, "the worker is gone"),
  };
  return t;
}
constexpr Table kTable = MakeTable();

constexpr bool EveryCellIsFilled() {
  for (const Row& row : kTable) {
    for (const Cell& cell : row) {
      if (cell.reason == nullptr) return false;
    }
  }
  return true;
}
static_assert(EveryCellIsFilled());
static_assert(static_cast<int>(SlotPhase::kExited) + 1 == kSlotPhases);
static_assert(static_cast<int>(SlotEvent::kGraceOver) + 1 == kSlotEvents);

}  // namespace

SlotDecision Slot::Step(SlotEvent event, Instant grace_until) {
  const Cell& cell = kTable[static_cast<size_t>(phase_)][static_cast<size_t>(event)];
  phase_ = cell.next;
  if (phase_ != SlotPhase::kTerminating) {
    grace_until_ = kNever;
  } else if (event == SlotEvent::kStopRequested) {
    grace_until_ = std::min(grace_until_, grace_until);
  }
  return SlotDecision{cell.action, cell.reason};
}

const char* SlotPhaseName(SlotPhase phase) {
  constexpr std::array<const char*, kSlotPhases> kNames = {
      "empty", "spawning", "running", "terminating", "killing", "failing", "exited"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace trainctl
