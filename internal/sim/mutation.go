package sim

import (
	"slices"
	"strings"
)

// Mutation is a rule of the lock that is broken on purpose.
type Mutation uint8

// The mutations, by what they break.
const (
	None Mutation = iota

	// In a script, whose text is edited.
	ExtendCreates      // extend re-creates a key that is gone
	ExtendShortens     // extend may shorten a key's life
	ReleaseBlind       // release deletes without comparing the holder
	AcquireOverwrites  // acquire sets without NX
	ConfirmSkipped     // a token is not written back
	ConfirmUnguarded   // a token is written back without comparing key and counter
	CounterFromClock   // a counter is not raised past the one before
	BlockOverlaps      // a block of counters is raised past the one before with its end only
	CounterUnclamped   // a proposal may be any distance from the server's clock
	MarkerIgnored      // the admission key is not read
	UptimeLies         // a server says it has been up for ever
	ReplicationIgnored // a vote does not look at the replication id
	PromotionHidden    // a server does not say that it was promoted, nor what it received before
	AdmissionBlind     // a server is admitted though it has forgotten since it was looked at
	RepairOverwrites   // repair does not look at what is there
	LeavesUnheld       // a node without a holder's key leaves those on others to whom it calls
	AdmissionUnnamed   // an admission that was written under another run or replication id admits
	AdmissionShort     // an admission of less than a stamp's length admits
	LookingWrites      // whoever looks at a node writes there
	RepeatRefused      // an acquire that is executed again is not granted again
	BatchAnySecond     // several at once are granted under counters of another second than the node's
	BatchAnyCounter    // several at once are granted under counters that are not larger
	HalfGranted        // of several names those that are free are granted, and that is a yes
	EachOwnCounter     // the counters of several names go up each by itself
	ConfirmSome        // a token is written back for several names where the first is whole
	HalfReleased       // of several names the first is released
	ReplacesAny        // of several names that were taken one by one the first alone is looked at
	CounterUnbounded   // a counter may be so large that the next is equal
	ReaderOverwrites   // a reader takes the key of a writer
	WriterOverReaders  // a writer takes the key of readers
	ReaderNotRaising   // the first reader is granted under the counter as it is
	ReaderAhead        // a reader who joins others is granted under a counter that is not stored
	ConfirmByMember    // a reader's token is written back wherever it is one of the readers
	MarkerOwnTTL       // the readers' key lives as long as who came last has it
	ReaderOthersTTL    // what a reader has ends with the last of them
	ReadersCounted     // a release takes out any reader
	ReaderUnadmitted   // a reader's step does not read the admission key
	ReaderRepaired     // a reader that is given its key back opens it under the counter that is there
	SlotTwice          // a step for a slot that is executed again grants a second one
	SlotOverTurn       // a slot is granted though another was woken up to take one
	SlotWakesNobody    // who takes a slot has nobody woken up while another is free
	SlotReleaseBlind   // a slot is released without comparing the holder
	SlotUnadmitted     // a step for a slot does not read the admission key
	SlotOverwrites     // a slot is granted though another has it

	// In a connection, as if the driver or the vote did so.
	DriftIgnored      // a key lives no longer than the validity
	OneHolderID       // all tries of a call have one holder id
	ReplyCountedTwice // one node's grant counts for another that was asked
	ReleaseOvertakes  // a release travels on a connection of its own
	SentAgain         // a command that may have been executed is sent again
	ReachableQuorum   // nodes that cannot be reached are not counted

	// In the settings.
	QuarantineOff // nodes that may have forgotten vote at once

	// In a clock.
	OneClock     // the clock that runs through suspend is not read
	WallDeadline // deadlines are kept by the wall clock

	Mutations // how many there are
)

var mutationNames = [Mutations]string{
	None:               "none",
	ExtendCreates:      "extend re-creates a key",
	ExtendShortens:     "extend shortens a key",
	ReleaseBlind:       "release without compare",
	AcquireOverwrites:  "acquire without NX",
	ConfirmSkipped:     "token without write-back",
	ConfirmUnguarded:   "write-back not guarded",
	CounterFromClock:   "counter not raised",
	BlockOverlaps:      "block of counters not raised",
	CounterUnclamped:   "counter not clamped",
	MarkerIgnored:      "admission key not read",
	UptimeLies:         "uptime not looked at",
	ReplicationIgnored: "replication id not looked at",
	PromotionHidden:    "promotion not looked at",
	AdmissionBlind:     "admission not compared",
	RepairOverwrites:   "repair overwrites",
	LeavesUnheld:       "left by a node without a key",
	AdmissionUnnamed:   "admission of another server",
	AdmissionShort:     "admission of no server",
	LookingWrites:      "looking writes",
	RepeatRefused:      "a repeat is not granted again",
	BatchAnySecond:     "batch granted in another second",
	BatchAnyCounter:    "batch granted under a smaller counter",
	HalfGranted:        "several names granted in part",
	EachOwnCounter:     "each name its own counter",
	ConfirmSome:        "several names confirmed in part",
	HalfReleased:       "several names released in part",
	ReplacesAny:        "several names replace any",
	CounterUnbounded:   "counter not bounded",
	ReaderOverwrites:   "a reader overwrites",
	WriterOverReaders:  "a writer overwrites readers",
	ReaderNotRaising:   "first reader does not raise the counter",
	ReaderAhead:        "reader ahead of the counter",
	ConfirmByMember:    "reader confirmed by being one",
	MarkerOwnTTL:       "readers' key as long as the last comer",
	ReaderOthersTTL:    "a reader as long as the others",
	ReadersCounted:     "release of any reader",
	ReaderUnadmitted:   "admission key not read for readers",
	ReaderRepaired:     "reader repaired under the counter that is there",
	SlotTwice:          "a repeat takes a second slot",
	SlotOverTurn:       "a slot out of turn",
	SlotWakesNobody:    "a slot wakes nobody up",
	SlotReleaseBlind:   "release of a slot without compare",
	SlotUnadmitted:     "admission key not read for slots",
	SlotOverwrites:     "a slot that another has",
	DriftIgnored:       "drift 0",
	OneHolderID:        "one holder id for all tries of a call",
	ReplyCountedTwice:  "a repeated reply counted twice",
	ReleaseOvertakes:   "release overtakes acquire",
	SentAgain:          "an acquire sent again",
	ReachableQuorum:    "quorum of the reachable nodes",
	QuarantineOff:      "no quarantine",
	OneClock:           "suspend not seen",
	WallDeadline:       "deadline by the wall clock",
}

func (m Mutation) String() string { return mutationNames[m] }

// weather returns the weather that brings out the mutation, where others hardly
// do.
func (m Mutation) weather() (Weather, bool) {
	switch m {
	case UptimeLies, PromotionHidden, MarkerIgnored, QuarantineOff:
		return Servers, true
	case DriftIgnored, WallDeadline:
		return Clocks, true
	case ConfirmUnguarded, RepairOverwrites, ExtendCreates, LeavesUnheld:
		return Torn, true
	case OneClock:
		return Processes, true
	case AdmissionBlind:
		return Alone, true
	case AdmissionUnnamed, ReplicationIgnored:
		return Roles, true
	case AdmissionShort, LookingWrites, CounterUnbounded:
		return Outside, true
	case BatchAnyCounter, BatchAnySecond:
		return Storm, true
	case ReachableQuorum:
		return Lossy, true
	case ReaderOverwrites, WriterOverReaders, ReaderNotRaising, ReaderAhead, MarkerOwnTTL, ReaderOthersTTL, ReadersCounted:
		return Readers, true
	case ReaderUnadmitted, SlotUnadmitted:
		return Servers, true
	case SlotTwice, SlotOverTurn, SlotWakesNobody, SlotReleaseBlind, SlotOverwrites:
		return Permits, true
	case HalfGranted, EachOwnCounter, ConfirmSome, HalfReleased, ReplacesAny:
		return Sets, true
	}
	return 0, false
}

// reads reports whether it is of a step of readers.
func (m Mutation) reads() bool { return ofReaders[m] }

// permits reports whether it is of a step for one of several slots.
func (m Mutation) permits() bool { return SlotTwice <= m && m <= SlotOverwrites }

// Within is the number of worlds in which the mutation is to be found.
func (m Mutation) Within() int {
	switch m {
	case ConfirmUnguarded, RepairOverwrites, ExtendCreates, LeavesUnheld:
		return 3000
	case AdmissionBlind, AdmissionShort, AdmissionUnnamed, BatchAnyCounter:
		return 1000
	case DriftIgnored, OneClock, WallDeadline, PromotionHidden, ReplicationIgnored:
		return 500
	}
	return 300
}

// Batches reports whether the mutation is of the step that puts several together, which is then
// used for single ones too.
func (m Mutation) Batches() bool { return m == BatchAnySecond || m == BatchAnyCounter }

// Survives is why no world shows the mutation, "" where one does.
func (m Mutation) Survives() string {
	switch m {
	case RepeatRefused:
		return "no command is executed twice; and one that is takes the key for another's, so that the attempt fails and is undone"
	case ConfirmSome:
		return "a node must lose one name of a lock and keep the others, which have the same TTL: the model finds it"
	case ReaderRepaired:
		return "a repair must come late, when a writer has held since, and another reader must join, as good as never: the model and TestReadersSteps find it"
	case ConfirmByMember:
		return "no command is executed twice: an entry that has ended does not come back before the token is stored; the model finds it"
	case CounterUnbounded:
		return "the client refuses what the script lets through: they are found together, as a breach"
	}
	return ""
}

// ParseMutation returns the mutation of that name.
func ParseMutation(name string) (m Mutation, ok bool) {
	i := slices.Index(mutationNames[:], name)
	return Mutation(max(i, 0)), i >= 0
}

// edit is a change to the text of a script: now replaces was, which occurs once in file.
type edit struct{ file, was, now string }

var edits = map[Mutation]edit{
	ExtendCreates: {"extend.lua", `if seen[1] ~= ARGV[2] then
  return seen[1] and {`, `if not seen[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX')
elseif seen[1] ~= ARGV[2] then
  return seen[1] and {`},
	ExtendShortens:    {"prolong.lua", `ttl, 'GT')`, `ttl)`},
	ReleaseBlind:      {"release.lua", `= seen[1] == ARGV[1], ARGV[4], nil`, `= seen[1] and true, ARGV[4], nil`},
	AcquireOverwrites: {"acquire.lua", `if seen[1] and seen[1] ~= from then`, `if false then`},
	ConfirmSkipped: {"confirm.lua", `if seen[1] ~= ARGV[2] or seen[2] ~= ARGV[3] then
  return 0`, `do
  return 1`},
	ConfirmUnguarded:   {"confirm.lua", `if seen[1] ~= ARGV[2] or seen[2] ~= ARGV[3] then`, `if false then`},
	CounterFromClock:   {"acquire.lua", `number = math.max(number, tonumber(seen[2]) + 1 + room)`, ``},
	BlockOverlaps:      {"acquire.lua", `tonumber(seen[2]) + 1 + room)`, `tonumber(seen[2]) + 1)`},
	CounterUnclamped:   {"acquire.lua", `math.min(math.max(tonumber(proposed), clock - CLAMP), clock + CLAMP)`, `tonumber(proposed)`},
	MarkerIgnored:      {"acquire.lua", `if not admitted(KEYS[3], seen[3], ARGV[7], now) then`, `if false then`},
	UptimeLies:         {"inspect.lua", `{table.concat(info)}`, `{(string.gsub(table.concat(info), 'uptime_in_seconds:%d+', 'uptime_in_seconds:1048576'))}`},
	ReplicationIgnored: {"admitted.lua", `if age < 0 or age > FRESH then`, `if false then`},
	PromotionHidden:    {"inspect.lua", `{table.concat(info)}`, `{(string.gsub(string.gsub(table.concat(info), 'second_repl_offset:%d+', 'second_repl_offset:-1'), 'repl_input_bytes:%d+', 'repl_input_bytes:0'))}`},
	AdmissionBlind: {"admit.lua", `if KEYS[2] and ((redis.call('GET', KEYS[2]) or '') ~= ARGV[4] or (redis.call('GET', KEYS[3]) or '') ~= ARGV[6])
  or flushes() ~= ARGV[5] or said(KEYS[1]) ~= ARGV[7] or not KEYS[2] and not inEpoch(ARGV[8]) then`,
		`if false then`},
	RepairOverwrites: {"repair.lua", `if seen[1] then
  return seen[1] == ARGV[2] and 1 or 0
end
if not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3], 'NX') then`, `if not redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) then`},
	LeavesUnheld:     {"release.lua", `ours and ARGV[1] or nil`, `ARGV[1]`},
	AdmissionUnnamed: {"admitted.lua", `if not said or expected == '' or string.sub(said, 1, -18) ~= expected then`, `if not said or expected == '' then`},
	AdmissionShort:   {"admitted.lua", `expected == '' or `, ``},
	LookingWrites:    {"inspect.lua", `local info = {}`, `redis.call('PSETEX', 'redlatch:looked', 1000, '') local info = {}`},
	RepeatRefused:    {"acquire.lua", `if seen[1] == id and waiter ~= '=' then`, `if false then`},
	BatchAnySecond:   {"batch.lua", ` and string.sub(proposed, 1, -7) == now[1]`, ``},
	BatchAnyCounter:  {"batch.lua", `(not last or #last == #proposed and last < proposed)`, `true`},
	HalfGranted: {"acquire_all.lua", `  if seen[i] and seen[i] ~= from(i) then
    return`, `  if seen[i] and seen[i] ~= from(i) then
    for k = 1, last, 3 do
      if redis.call('SET', KEYS[k], id, 'PX', ARGV[3], 'NX') then
        redis.call('SET', KEYS[k + 1], now[1] .. '000000', 'PX', ARGV[6])
      end
    end
    do return now[1] * 1000000 end
    return`},
	EachOwnCounter: {"acquire_all.lua", `    reply = redis.pcall('SET', KEYS[i + 1], counter, 'PX', ARGV[6], 'GET')`,
		`    local own = math.min(math.max(tonumber(ARGV[4]), us - CLAMP), us + CLAMP)
    own = math.max(own, (tonumber(seen[i + 1]) or 0) + 1)
    reply = redis.pcall('SET', KEYS[i + 1], string.format('%.0f', own), 'PX', ARGV[6], 'GET')`},
	ConfirmSome:      {"confirm_all.lua", `  if seen[i] ~= ARGV[2] or seen[i + 1] ~= ARGV[3] then`, `  if i == 1 and (seen[i] ~= ARGV[2] or seen[i + 1] ~= ARGV[3]) then`},
	HalfReleased:     {"release_all.lua", `  if seen[i] == ARGV[1] then`, `  if i == 1 and seen[i] == ARGV[1] then`},
	ReplacesAny:      {"acquire_all.lua", `if seen[i] and seen[i] ~= from(i) then`, `if seen[i] and seen[i] ~= from(i) and (i == 1 or not from(i)) then`},
	CounterUnbounded: {"acquire.lua", `if not string.find(seen[2], '^%d+$') or #seen[2] > 16 or tonumber(seen[2]) >= COUNTERS - room then`, `if false then`},

	ReaderOverwrites:  {"acquire_shared.lua", `if seen[1] and not under and (seen[1] ~= from or from == '') then`, `if false then`},
	WriterOverReaders: {"acquire.lua", `if seen[1] and seen[1] ~= from then`, `if seen[1] and seen[1] ~= from and string.sub(seen[1], 1, 16) ~= 'redlatch:shared ' then`},
	ReaderNotRaising:  {"acquire_shared.lua", `counter = math.max(counter, tonumber(seen[2]) + 1)`, `counter = tonumber(seen[2])`},
	ReaderAhead:       {"acquire_shared.lua", `counter = math.max(tonumber(seen[2]) or 0, under)`, `counter = math.max(tonumber(seen[2]) or 0, under) + 1`},
	ConfirmByMember:   {"confirm_shared.lua", `if not under or under > tonumber(ARGV[3])`, `if not under`},
	MarkerOwnTTL:      {"readers.lua", `redis.call('PEXPIRE', key, ttl, 'GT')`, `redis.call('PEXPIRE', key, ttl)`},
	ReaderOthersTTL:   {"readers.lua", `math.max(ends(readers, id), now + ttl), id)`, `math.max(ends(readers, id), now + math.max(ttl, redis.call('PTTL', key))), id)`},
	ReadersCounted:    {"release_shared.lua", `redis.call('ZREM', readers, ARGV[1])`, `redis.call('ZREM', readers, redis.call('ZRANGE', readers, 0, 0)[1])`},
	ReaderUnadmitted:  {"acquire_shared.lua", `if not admitted(KEYS[3], seen[3], ARGV[7], time) then`, `if false then`},
	ReaderRepaired:    {"repair_shared.lua", `counter + 1`, `counter`},

	SlotTwice:        {"slot.lua", `if seen[i] == id then`, `if false then`},
	SlotOverTurn:     {"slot.lua", `if who and who ~= waiter and waiter ~= '*' then`, `if false then`},
	SlotWakesNobody:  {"slot.lua", `if head and more then`, `if false then`},
	SlotReleaseBlind: {"release_slot.lua", `local ours, said = seen[1] == id, seen[3]`, `local ours, said = seen[1] and true, seen[3]`},
	SlotUnadmitted: {"slot.lua", `if not admitted(KEYS[2], values[1], ARGV[7], now) then`, `admitted = function() return true end
if false then`},
	SlotOverwrites: {"slot.lua", `  if not seen[i] then
    more`, `  if true then
    redis.call('DEL', keys[i])
    more`},
}

// ofReaders are the mutations of a step of readers.
var ofReaders = map[Mutation]bool{
	ReaderOverwrites: true, WriterOverReaders: true, ReaderNotRaising: true, ReaderAhead: true, ConfirmByMember: true,
	MarkerOwnTTL: true, ReaderOthersTTL: true, ReadersCounted: true, ReaderUnadmitted: true, ReaderRepaired: true,
}

// edit returns what the mutation does to the text of a script that a server is sent, nil
// for nothing.
func (m Mutation) edit() func(text string) string {
	e, ok := edits[m]
	if !ok {
		return nil
	}
	return func(text string) string { return strings.ReplaceAll(text, e.was, e.now) }
}
