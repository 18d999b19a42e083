/*
 * Fencing tokens of the read-write lock over three nodes: token.pml with
 * readers beside its writers. There is no time in it: a writer's key and a
 * reader's entry end at any moment, by themselves, which is also what a release
 * does. Messages are executed at any later time, any number of times or never;
 * answers are lost. README.md says what stands for what in the code.
 *
 * While readers have a node, its key is a marker that says under which number
 * the first of them was granted: the phase. Who comes to read in a phase is
 * granted under the counter as it is.
 */
#ifndef MAX
#define MAX 3          /* the largest number a counter reaches: 2, 3 or 4 */
#endif
#ifndef WRITERS
#define WRITERS 1      /* 1 or 2 */
#endif
#ifndef READERS
#define READERS 1      /* 1 or 2 */
#endif
#define N 3
#define QUORUM 2
#define ATTEMPTS (WRITERS + READERS)

#define NOBODY 0
#define OF(a) (1 + (a))
#define NONE 0         /* no phase: there is no marker */

/* What an attempt is at. It may stop for good at any point. The attempts from WRITERS on are readers'. */
#define ASKING 0
#define CHOSEN 1       /* its token is chosen */
#define HELD 2         /* and stays so: the messages of a hold that is over are still about */

byte counter[N];
byte key[N];                /* the writer whose it is */
byte phase[N];              /* what the marker says */
bit entry[N * ATTEMPTS];    /* a reader has one */
byte reply[N * ATTEMPTS];   /* the number node n answered to attempt a, then the token once it is confirmed there */
byte state[ATTEMPTS], token[ATTEMPTS];
byte earlier[ATTEMPTS];     /* bit b: b held before this attempt was granted anything; bit 7: it has been granted something */
#ifdef WHOLE
bit kept[N * ATTEMPTS];     /* what the node granted has not ended since its answer was read */
#endif

byte tmp;                   /* scratch, back at 0 after every step */

/*
 * What must hold whenever an attempt wins, against every attempt that has held
 * before and that it excludes: a reader's, if it is a writer's.
 */
bit distinct = 1;               /* the tokens differ */
bit ordered = 1;                /* the other's is smaller if it held before this one was granted anything */
bit ordered_while_stored = 1;   /* and if a quorum still stores this one's key or entry, and token */
bit confirmed = 1;              /* no node refuses to store the token while all is there as it was granted */

/* What is broken, which is to be seen: no quorum stores the tokens of two readers at once. Asserted by PROPERTY=alone. */
bit alone = 1;

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(distinct); assert(ordered); assert(ordered_while_stored); assert(confirmed);
#endif
	distinct = 1; ordered = 1; ordered_while_stored = 1; confirmed = 1; alone = 1
}

#define ENTRY(n, a) entry[(n) * ATTEMPTS + (a)]
#define REPLY(n, a) reply[(n) * ATTEMPTS + (a)]
#define KEPT(n, a) kept[(n) * ATTEMPTS + (a)]
#define EMPTY(n) (key[n] == NOBODY && phase[n] == NONE)

/* Options and sums, spelled out: one process without variables of its own keeps a state small. */
#define NODES(S) S(0) S(1) S(2)
#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a)
#define NODES_FOR(S, a, v) S(0, a, v) S(1, a, v) S(2, a, v)
#if WRITERS == 1
#define WRITER(S) S(0)
#define WRITERS_OF(S, a) S(0, a)
#define WRITER_LINKS(S) NODES_OF(S, 0)
#elif WRITERS == 2
#define WRITER(S) S(0) S(1)
#define WRITERS_OF(S, a) S(0, a) S(1, a)
#define WRITER_LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#else
#error "WRITERS is 1 or 2"
#endif
#if READERS == 1
#define READER(S) S(WRITERS)
#define READERS_OF(S, a) S(WRITERS, a)
#define READERS_ON(S, n) S(n, WRITERS)
#define READER_LINKS(S) NODES_OF(S, WRITERS)
#elif READERS == 2
#define READER(S) S(WRITERS) S(WRITERS + 1)
#define READERS_OF(S, a) S(WRITERS, a) S(WRITERS + 1, a)
#define READERS_ON(S, n) S(n, WRITERS) S(n, WRITERS + 1)
#define READER_LINKS(S) NODES_OF(S, WRITERS) NODES_OF(S, WRITERS + 1)
#else
#error "READERS is 1 or 2"
#endif
#define ATTEMPT(S) WRITER(S) READER(S)
#define LINKS(S) WRITER_LINKS(S) READER_LINKS(S)
#if MAX == 2
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2)
#define TOKENS(S, a) S(a, 1) S(a, 2)
#elif MAX == 3
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3)
#elif MAX == 4
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3) S(n, a, 4)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3) S(a, 4)
#else
#error "MAX is 2, 3 or 4"
#endif

#define GRANTED(n, a)     + (REPLY(n, a) > 0)
#define UP_TO(n, a, v)    + (REPLY(n, a) > 0 && REPLY(n, a) <= (v))
#define IS(n, a, v)       + (REPLY(n, a) == (v))
#define WRITE_STORED(n, a) + (key[n] == OF(a) && counter[n] == token[a])
#define READ_STORED(n, a) + (ENTRY(n, a) && phase[n] <= token[a] && counter[n] >= token[a])

/* ---- the rules, each with the switch that turns it off ---- */

#ifdef NO_WRITE_BACK
#define ELECTED(a) (0 NODES_OF(GRANTED, a) >= QUORUM)
#else
#define ELECTED(a) (0 NODES_FOR(IS, a, token[a]) >= QUORUM)
#endif

#ifdef OPEN_NOT_RAISING /* who opens a phase gets the last writer's number */
#define OPENS(n, v) (counter[n] == (v) || (counter[n] == 0 && (v) == 1))
#else
#define OPENS(n, v) (counter[n] < (v))
#endif

#ifdef REPAIR_NOT_RAISING /* who is repaired opens a phase under the counter that is there */
#define RAISED 0
#else
#define RAISED 1
#endif

#ifdef READER_ALWAYS_RAISES
#define JOINS(n, v) (counter[n] < (v))
#else
#define JOINS(n, v) (counter[n] == (v))
#endif

#if defined(CONFIRM_BY_MEMBER) /* by the entry alone */
#define MAY_READ_CONFIRM(n, a) ENTRY(n, a)
#elif defined(READER_ALWAYS_RAISES)
#define MAY_READ_CONFIRM(n, a) (ENTRY(n, a) && counter[n] == REPLY(n, a))
#else
#define MAY_READ_CONFIRM(n, a) (ENTRY(n, a) && phase[n] <= REPLY(n, a))
#endif
#define MAY_WRITE_CONFIRM(n, a) (key[n] == OF(a) && counter[n] == REPLY(n, a))

/* ---- one message executed on one node ---- */

#define HAS_HELD(a) + ((state[a] == HELD) << (a))

inline begin(a) {
	if
	:: (earlier[a] >> 7) == 0 -> earlier[a] = 128 ATTEMPT(HAS_HELD)
	:: else
	fi
}

inline raise(n, v) {
	if
	:: counter[n] < v -> counter[n] = v
	:: else
	fi
}

inline write(n, a, v) {
	key[n] = OF(a); counter[n] = v; begin(a); printf("node %d grants writer %d under %d\n", n, a, v)
}

inline open(n, a, v) {
	ENTRY(n, a) = 1; counter[n] = v; phase[n] = v; begin(a); printf("node %d opens a phase under %d for reader %d\n", n, v, a)
}

inline join(n, a, v) {
	ENTRY(n, a) = 1; counter[n] = v; begin(a); printf("node %d lets reader %d in under %d\n", n, a, v)
}

#ifdef WHOLE
#define KEEP(n, a) KEPT(n, a) = 1;
#define BREAK(n, a) KEPT(n, a) = 0;
#else
#define KEEP(n, a)
#define BREAK(n, a)
#endif

inline read(n, a, v) {
	KEEP(n, a)
	REPLY(n, a) = v; printf("attempt %d reads %d from node %d\n", a, v, n)
}

#define PRESENT(n, a) || ENTRY(n, a)
#define END_PHASE(n) \
	if \
	:: !(false READERS_ON(PRESENT, n)) -> phase[n] = NONE \
	:: else \
	fi

inline write_expire(n, a) {
	key[n] = NOBODY; BREAK(n, a) printf("writer %d's key on node %d ends\n", a, n)
}

inline read_expire(n, a) {
	ENTRY(n, a) = 0; END_PHASE(n); BREAK(n, a)
	printf("reader %d's entry on node %d ends\n", a, n)
}

inline confirm(n, a) {
	raise(n, token[a]); printf("node %d stores attempt %d's token %d; its counter is %d\n", n, a, token[a], counter[n])
}

inline write_repair(n, a) {
	key[n] = OF(a); raise(n, token[a]); printf("node %d is repaired for writer %d\n", n, a)
}

inline read_repair(n, a) {
	ENTRY(n, a) = 1;
	if
	:: EMPTY(n) && counter[n] > token[a] -> counter[n] = counter[n] + RAISED
	:: else -> raise(n, token[a])
	fi;
	if
	:: phase[n] == NONE -> phase[n] = counter[n]
	:: else
	fi;
	printf("node %d is repaired for reader %d, in phase %d\n", n, a, phase[n])
}

/* ---- what a client does ---- */

/* Who answered more does not count. */
#define PASS_OVER(n, a) if :: REPLY(n, a) > token[a] -> REPLY(n, a) = 0; BREAK(n, a) :: else fi;

inline choose(a, v) {
	state[a] = CHOSEN; token[a] = v; printf("attempt %d takes %d as its token\n", a, v);
	NODES_OF(PASS_OVER, a)
}

#define COMPARE(b, a) \
	distinct = distinct && (state[b] != HELD || token[b] != token[a]); \
	ordered = ordered && (((earlier[a] >> (b)) & 1) == 0 || token[b] < token[a]); \
	ordered_while_stored = ordered_while_stored && (state[b] != HELD || token[b] < token[a]);

#define CLEAR(n, a) REPLY(n, a) = 0; BREAK(n, a)

inline write_hold(a) {
	printf("writer %d holds with token %d\n", a, token[a]);
	WRITERS_OF(COMPARE, a)
	READERS_OF(COMPARE, a)
	ordered_while_stored = ordered_while_stored || (0 NODES_OF(WRITE_STORED, a) < QUORUM);
	claim();
	state[a] = HELD; earlier[a] = 128;
	NODES_OF(CLEAR, a)
}

#define READS(a) + (state[a] == HELD && (0 NODES_OF(READ_STORED, a)) >= QUORUM)

inline read_hold(a) {
	printf("reader %d holds with token %d\n", a, token[a]);
	WRITERS_OF(COMPARE, a)
	ordered_while_stored = ordered_while_stored || (0 NODES_OF(READ_STORED, a) < QUORUM);
	alone = ((0 NODES_OF(READ_STORED, a)) < QUORUM || (0 READER(READS)) == 0);
	claim();
	state[a] = HELD; earlier[a] = 128;
	NODES_OF(CLEAR, a)
}

/* No rule names a node: of the states that differ only in the order of the nodes SORTED keeps one. */
#define ATTEMPT_PLACE(n, a) (REPLY(n, a) * 2 + ENTRY(n, a))
#if ATTEMPTS == 3
#define LAST_PLACE(n) ATTEMPT_PLACE(n, 2)
#else
#define LAST_PLACE(n) 0
#endif
#ifdef WHOLE
#define KEPT_PLACE(n) (KEPT(n, 0) + 2 * KEPT(n, 1) + 4 * KEPT(n, ATTEMPTS - 1))
#else
#define KEPT_PLACE(n) 0
#endif
#define PLACE(n) ((((((key[n] * 5 + phase[n]) * 5 + counter[n]) * 10 + ATTEMPT_PLACE(n, 0)) * 10 + ATTEMPT_PLACE(n, 1)) * 10 + LAST_PLACE(n)) * 8 + KEPT_PLACE(n))

inline swap(x, y) { tmp = x; x = y; y = tmp }

#ifdef WHOLE
#define SWAP_KEPT(m, n, a) swap(KEPT(m, a), KEPT(n, a));
#else
#define SWAP_KEPT(m, n, a)
#endif

inline swap_attempt(m, n, a) {
	SWAP_KEPT(m, n, a)
	swap(REPLY(m, a), REPLY(n, a)); swap(ENTRY(m, a), ENTRY(n, a))
}

inline order(m, n) {
	if
	:: PLACE(m) > PLACE(n) ->
		swap(key[m], key[n]); swap(phase[m], phase[n]); swap(counter[m], counter[n]);
#if ATTEMPTS == 3
		swap_attempt(m, n, 2);
#endif
		swap_attempt(m, n, 0); swap_attempt(m, n, 1)
	:: else
	fi
}

inline sort() {
	order(0, 1); order(1, 2); order(0, 1);
	tmp = 0
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define READABLE(n, a, v) (REPLY(n, a) == 0 && (state[a] == ASKING || (state[a] == CHOSEN && (v) <= token[a])))

#define WRITE(n, a) NUMBERS(WRITE_READ, n, a) NUMBERS(WRITE_LOST, n, a)
#define MAY_WRITE(n, v)      (EMPTY(n) && counter[n] < (v))
#define WRITE_READ(n, a, v)  :: STEP { MAY_WRITE(n, v) && READABLE(n, a, v) -> write(n, a, v); read(n, a, v) }
#define WRITE_LOST(n, a, v)  :: STEP { MAY_WRITE(n, v) -> write(n, a, v) }
#define WRITE_AGAIN(n, a)    :: STEP { key[n] == OF(a) && READABLE(n, a, counter[n]) -> read(n, a, counter[n]) }

#define READ(n, a) NUMBERS(OPEN_READ, n, a) NUMBERS(OPEN_LOST, n, a) NUMBERS(JOIN_READ, n, a) NUMBERS(JOIN_LOST, n, a)
#define MAY_OPEN(n, v)       (EMPTY(n) && OPENS(n, v))
#define MAY_JOIN(n, a, v)    (phase[n] != NONE && !ENTRY(n, a) && JOINS(n, v))
#define OPEN_READ(n, a, v)   :: STEP { MAY_OPEN(n, v) && READABLE(n, a, v) -> open(n, a, v); read(n, a, v) }
#define OPEN_LOST(n, a, v)   :: STEP { MAY_OPEN(n, v) -> open(n, a, v) }
#if READERS > 1
#define JOIN_READ(n, a, v)   :: STEP { MAY_JOIN(n, a, v) && READABLE(n, a, v) -> join(n, a, v); read(n, a, v) }
#define JOIN_LOST(n, a, v)   :: STEP { MAY_JOIN(n, a, v) -> join(n, a, v) }
#else /* a phase is over with its only reader */
#define JOIN_READ(n, a, v)
#define JOIN_LOST(n, a, v)
#endif
#define READ_AGAIN(n, a)     :: STEP { ENTRY(n, a) && READABLE(n, a, counter[n]) -> read(n, a, counter[n]) }

#define WRITE_EXPIRE(n, a)   :: STEP { key[n] == OF(a) -> write_expire(n, a) }
#define READ_EXPIRE(n, a)    :: STEP { ENTRY(n, a) -> read_expire(n, a) }

#define TO_CONFIRM(n, a)     (state[a] == CHOSEN && REPLY(n, a) > 0 && REPLY(n, a) < token[a])
#define CONFIRM(MAY, n, a)   :: STEP { TO_CONFIRM(n, a) && MAY(n, a) -> confirm(n, a); REPLY(n, a) = token[a] }
#define WRITE_CONFIRM(n, a)  CONFIRM(MAY_WRITE_CONFIRM, n, a) CONFIRM_LOST(MAY_WRITE_CONFIRM, n, a)
#define READ_CONFIRM(n, a)   CONFIRM(MAY_READ_CONFIRM, n, a) CONFIRM_LOST(MAY_READ_CONFIRM, n, a)
#ifdef WHOLE
/* A client confirms once: with a lost answer it has lost the node's vote. */
#define CONFIRM_LOST(MAY, n, a)
#define REFUSES(MAY, n, a) :: STEP { TO_CONFIRM(n, a) && KEPT(n, a) && !MAY(n, a) -> confirmed = 0; claim() }
#define WRITE_REFUSE(n, a) REFUSES(MAY_WRITE_CONFIRM, n, a)
#define READ_REFUSE(n, a)  REFUSES(MAY_READ_CONFIRM, n, a)
#else
#define CONFIRM_LOST(MAY, n, a) :: STEP { TO_CONFIRM(n, a) && MAY(n, a) -> confirm(n, a) }
#define WRITE_REFUSE(n, a)
#define READ_REFUSE(n, a)
#endif

#define WRITE_EXTEND(n, a)   :: STEP { state[a] == HELD && key[n] == OF(a) && counter[n] < token[a] -> raise(n, token[a]) }
#define READ_EXTEND(n, a)    :: STEP { state[a] == HELD && ENTRY(n, a) && counter[n] < token[a] -> raise(n, token[a]) }
#define WRITE_REPAIR(n, a)   :: STEP { state[a] == HELD && EMPTY(n) -> write_repair(n, a) }
#define READ_REPAIR(n, a) \
	:: STEP { state[a] == HELD && EMPTY(n) && (counter[n] <= token[a] || counter[n] + RAISED <= MAX) -> read_repair(n, a) } \
	:: STEP { state[a] == HELD && phase[n] != NONE && !ENTRY(n, a) -> read_repair(n, a) }

#define CHOOSE(a)            TOKENS(CHOOSE_FOR, a)
#define CHOOSE_FOR(a, v)     :: STEP { state[a] == ASKING && (0 NODES_FOR(IS, a, v)) > 0 && (0 NODES_FOR(UP_TO, a, v)) >= QUORUM -> choose(a, v) }
#define WRITE_HOLD(a)        :: STEP { state[a] == CHOSEN && ELECTED(a) -> write_hold(a) }
#define READ_HOLD(a)         :: STEP { state[a] == CHOSEN && ELECTED(a) -> read_hold(a) }

#define STEPS \
	WRITER_LINKS(WRITE) \
	WRITER_LINKS(WRITE_AGAIN) \
	WRITER_LINKS(WRITE_EXPIRE) \
	WRITER_LINKS(WRITE_CONFIRM) \
	WRITER_LINKS(WRITE_REFUSE) \
	WRITER_LINKS(WRITE_EXTEND) \
	WRITER_LINKS(WRITE_REPAIR) \
	READER_LINKS(READ) \
	READER_LINKS(READ_AGAIN) \
	READER_LINKS(READ_EXPIRE) \
	READER_LINKS(READ_CONFIRM) \
	READER_LINKS(READ_REFUSE) \
	READER_LINKS(READ_EXTEND) \
	READER_LINKS(READ_REPAIR) \
	WRITER(WRITE_HOLD) \
	READER(READ_HOLD) \
	ATTEMPT(CHOOSE)

active proctype system() {
end:	do
#ifdef SORTED
	:: atomic { if STEPS fi; d_step { sort() } }
#else
	STEPS
#endif
	od
}
