/*
 * The read-write lock over N nodes, in discrete time: lock.pml with readers
 * beside its writers. Timers, clocks and the network are as they are there. A
 * writer is what a client of lock.pml is. While readers have a node, a marker
 * stands there in place of a writer's key, for as long as the longest of their
 * entries lasts. README.md says what stands for what in the code, and what is
 * left out.
 */
#ifndef N
#define N 3            /* nodes: 3 or 5 */
#endif
#ifndef WRITERS
#define WRITERS 1      /* 1 or 2 */
#endif
#ifndef READERS
#define READERS 1      /* 1 or 2 */
#endif
#ifndef TTL
#define TTL 3          /* ticks a node is asked to keep a key, or a reader's entry, for */
#endif
#ifndef TTL_OF_LAST
#define TTL_OF_LAST TTL /* of the last reader; no more than TTL */
#endif
#define NODE_FAST 1
#define CLIENTS (WRITERS + READERS)

/* Whose a writer's key is: nobody's, the attempt's a writer is at, or a finished attempt's. */
#define NOBODY 0
#define OF(c) (1 + (c))
#define FINISHED (1 + CLIENTS)

/* What a client is at. The clients from WRITERS on are readers. */
#define IDLE 0
#define TRYING 1
#define HELD 2

byte key[N], life[N];     /* a writer's key, and what is left of it */
byte marker[N];           /* what is left of the marker; 0: there is none */
byte entry[N * CLIENTS];  /* what is left of a reader's entry; 0: there is none */
bit over[N * CLIENTS];    /* the entry is a finished attempt's */
byte quarantine[N];
byte yes[N];              /* bit c: this node said yes to what client c is asking now */
byte state[CLIENTS], validity[CLIENTS];
byte pledge[CLIENTS];     /* what validity becomes if the extension under way is confirmed */
bit past[CLIENTS];        /* there have been attempts before, and their messages are still about */
#ifdef MORTAL             /* a client that is done sends nothing more, and none of its messages is late */
byte since[CLIENTS];      /* counts down to the moment when nothing of its last attempt may be left */
#endif

byte tmp;                 /* scratch, back at 0 after every step */

/* What must hold. PROPERTY=name checks that one alone. */
bit exclusive = 1;        /* no writer's validity runs beside another's, a reader's or a writer's */
bit covered = 1;          /* where a reader has an entry the marker stands, for no less long */
bit gone = 1;             /* nothing is left of a reader after its TTL */

/* What is broken, which is to be seen: no two readers hold at once. Asserted by PROPERTY=alone. */
bit alone = 1;

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(exclusive); assert(covered); assert(gone);
#endif
	exclusive = 1; covered = 1; gone = 1; alone = 1
}

#define ENTRY(n, c) entry[(n) * CLIENTS + (c)]
#define OVER(n, c) over[(n) * CLIENTS + (c)]

/* Options and sums, spelled out: one process without variables of its own keeps a state small. */
#if N == 3
#define NODES(S) S(0) S(1) S(2)
#define NODES_OF(S, c) S(0, c) S(1, c) S(2, c)
#elif N == 5
#define NODES(S) S(0) S(1) S(2) S(3) S(4)
#define NODES_OF(S, c) S(0, c) S(1, c) S(2, c) S(3, c) S(4, c)
#else
#error "N is 3 or 5"
#endif
#if WRITERS == 1
#define WRITER(S) S(0)
#define WRITER_LINKS(S) NODES_OF(S, 0)
#elif WRITERS == 2
#define WRITER(S) S(0) S(1)
#define WRITER_LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#else
#error "WRITERS is 1 or 2"
#endif
#if READERS == 1
#define READER(S) S(WRITERS)
#define READERS_ON(S, n) S(n, WRITERS)
#define READER_LINKS(S) NODES_OF(S, WRITERS)
#elif READERS == 2
#define READER(S) S(WRITERS) S(WRITERS + 1)
#define READERS_ON(S, n) S(n, WRITERS) S(n, WRITERS + 1)
#define READER_LINKS(S) NODES_OF(S, WRITERS) NODES_OF(S, WRITERS + 1)
#else
#error "READERS is 1 or 2"
#endif
#define CLIENT(S) WRITER(S) READER(S)
#define LINKS(S) WRITER_LINKS(S) READER_LINKS(S)

#define IS_READER(c) ((c) >= WRITERS)
#define TTL_FOR(c) ((c) == CLIENTS - 1 && IS_READER(c) -> TTL_OF_LAST : TTL)
#define SAID_YES(n, c) + ((yes[n] >> (c)) & 1)
#define COUNT(c) (0 NODES_OF(SAID_YES, c))

/* ---- the rules, each with the switch that turns it off ---- */

#define QUORUM (N / 2 + 1)
#ifdef READ_ONE        /* any node lets a reader read */
#define NEEDS(c) (IS_READER(c) -> 1 : QUORUM)
#else
#define NEEDS(c) QUORUM
#endif

#ifdef NO_DRIFT
#define VALIDITY(c) TTL_FOR(c)
#else
#define VALIDITY(c) (TTL_FOR(c) - NODE_FAST)
#endif

#ifdef NO_QUARANTINE
#define IN_QUARANTINE 0
#else /* the shortest a quarantine can come out */
#define IN_QUARANTINE (TTL + 1 - NODE_FAST)
#endif
#define ADMITTED(n) (quarantine[n] == 0)

#ifdef WRITER_IGNORES_READERS
#define FREE_TO_WRITE(n) (key[n] == NOBODY)
#else
#define FREE_TO_WRITE(n) (key[n] == NOBODY && marker[n] == 0)
#endif
#define FREE_TO_READ(n) (key[n] == NOBODY)

#define LONGEST(n, c) if :: ENTRY(n, c) > marker[n] -> marker[n] = ENTRY(n, c) :: else fi;

/* The marker lasts as long as the longest entry. */
inline fit_marker(n) { marker[n] = 0; READERS_ON(LONGEST, n) }

#ifdef MARKER_OWN_TTL  /* as long as who came last */
#define SET_MARKER(n, span) marker[n] = span
#else
#define SET_MARKER(n, span) fit_marker(n)
#endif

#define LENGTHEN(n, c, span) if :: ENTRY(n, c) > 0 && ENTRY(n, c) < (span) -> ENTRY(n, c) = span :: else fi;
#ifdef SHARED_TTL      /* the readers of a node have one */
#define LENGTHEN_ALL(n, span) LENGTHEN(n, WRITERS, span) LENGTHEN(n, CLIENTS - 1, span)
#else
#define LENGTHEN_ALL(n, span)
#endif

/* ---- one message executed on one node ---- */

#define SHOWN(n, c) covered = covered && ENTRY(n, c) <= marker[n];
#define ALL_COVERED(n) READERS_ON(SHOWN, n) claim()

inline say_yes(n, c) { yes[n] = yes[n] | (1 << (c)) }

inline write(n, owner, span) { key[n] = owner; life[n] = span }

inline free(n) { key[n] = NOBODY; life[n] = 0 }

inline enter(n, c, finished, span) {
	ENTRY(n, c) = span; OVER(n, c) = finished; SET_MARKER(n, span); ALL_COVERED(n)
}

/* It drops the entry, and the marker with the last. */
inline leave(n, c) {
	ENTRY(n, c) = 0; OVER(n, c) = 0; fit_marker(n)
}

inline write_grant(n, c, span) {
	write(n, OF(c), span); say_yes(n, c); printf("node %d grants writer %d, for %d ticks\n", n, c, life[n])
}

inline read_grant(n, c, span) {
	enter(n, c, 0, span); say_yes(n, c); printf("node %d grants reader %d, for %d ticks\n", n, c, ENTRY(n, c))
}

/* A repeated message finds its own id: granted again, and nothing changed. */
inline grant_again(n, c) { say_yes(n, c) }

/* Stragglers: the attempt has been decided, the vote does not count. And so it is with a repair. */
inline write_unasked(n, c, span) {
	write(n, OF(c), span); printf("node %d has writer %d's key, without a vote, for %d ticks\n", n, c, life[n])
}

inline read_unasked(n, c, span) {
	enter(n, c, 0, span); printf("node %d has reader %d's entry, without a vote, for %d ticks\n", n, c, ENTRY(n, c))
}

inline write_extend(n, c, span) {
	write(n, OF(c), span); printf("node %d extends writer %d, to %d ticks\n", n, c, life[n])
}

inline read_extend(n, c, span) {
	LENGTHEN(n, c, span) LENGTHEN_ALL(n, span)
	SET_MARKER(n, span); ALL_COVERED(n);
	printf("node %d extends reader %d, to %d ticks\n", n, c, ENTRY(n, c))
}

inline late_write_release(n) { free(n); printf("node %d: a late release deletes a writer's key\n", n) }

inline late_read_release(n, c) { leave(n, c); printf("node %d: a late release deletes reader %d's entry\n", n, c) }

/* The number of readers goes down again: one of them is no longer counted. */
inline count_down(n, c) { leave(n, c); printf("node %d: a release executed twice takes reader %d's place\n", n, c) }

/* A finished attempt's message. */
inline late_write(n, span) { write(n, FINISHED, span); printf("node %d: a late message stores a writer's key\n", n) }

inline late_read(n, c, span) { enter(n, c, 1, span); printf("node %d: a late message makes an entry of reader %d\n", n, c) }

#define FORGET_ENTRY(n, c) ENTRY(n, c) = 0; OVER(n, c) = 0;

inline crash(n) {
	free(n); READERS_ON(FORGET_ENTRY, n) marker[n] = 0;
	quarantine[n] = IN_QUARANTINE; printf("node %d restarts with nothing in memory\n", n)
}

/* ---- what a client does ---- */

#define FORGET(n, c) yes[n] = yes[n] & ~(1 << (c));

inline forget_answers(c) { NODES_OF(FORGET, c) }

#define HOLDS(c) + (state[c] == HELD)
#define WRITING (0 WRITER(HOLDS))
#define READING (0 READER(HOLDS))

inline start(c) {
	state[c] = TRYING; validity[c] = VALIDITY(c);
	printf("client %d starts an attempt, validity %d\n", c, validity[c])
}

inline compare() {
	exclusive = (WRITING == 0 || WRITING + READING == 1); alone = (READING <= 1); claim()
}

inline hold(c) {
	state[c] = HELD; forget_answers(c);
	printf("client %d holds, validity left %d\n", c, validity[c]);
	compare()
}

/* Also before the last round was answered: its answers no longer count. */
inline begin_round(c) {
	forget_answers(c); pledge[c] = VALIDITY(c);
	printf("client %d sends an extension, validity left %d\n", c, validity[c])
}

inline count_round(c) {
	validity[c] = pledge[c]; pledge[c] = 0; forget_answers(c);
	printf("client %d is extended, validity left %d\n", c, validity[c]);
	compare()
}

#define END_KEY(n, c) if :: key[n] == OF(c) -> key[n] = FINISHED :: else fi;
#define END_ENTRY(n, c) if :: ENTRY(n, c) > 0 -> OVER(n, c) = 1 :: else fi;

#ifdef MORTAL
#define LAST_TTL(c) since[c] = TTL_FOR(c) + 1;
#else
#define LAST_TTL(c)
#endif

/* Released, given up or lapsed: releases are sent. What is stored stays until one arrives or its time ends. */
inline finish(c) {
	forget_answers(c); state[c] = IDLE; validity[c] = 0; pledge[c] = 0; past[c] = 1;
	LAST_TTL(c)
	printf("client %d is done with its attempt\n", c)
}

inline write_finish(c) { NODES_OF(END_KEY, c) finish(c) }

inline read_finish(c) { NODES_OF(END_ENTRY, c) finish(c) }

/* ---- time ---- */

#define NODE_TIMERS(n)   + life[n] + marker[n] + quarantine[n]
#ifdef MORTAL
#define CLIENT_TIMERS(c) + validity[c] + pledge[c] + since[c]
#else
#define CLIENT_TIMERS(c) + validity[c] + pledge[c]
#endif

#define AGE_ENTRY(n, c) \
	if \
	:: ENTRY(n, c) > 1 -> ENTRY(n, c)-- \
	:: ENTRY(n, c) == 1 -> ENTRY(n, c) = 0; OVER(n, c) = 0 \
	:: else \
	fi;

#ifdef MARKER_OWN_TTL
#define AGE_MARKER(n) \
	if \
	:: marker[n] > 1 -> marker[n]-- \
	:: marker[n] == 1 -> marker[n] = 0; READERS_ON(FORGET_ENTRY, n) \
	:: else \
	fi
#else
#define AGE_MARKER(n) fit_marker(n)
#endif

#define AGE_NODE(n) \
	if \
	:: life[n] > 1 -> life[n]-- \
	:: life[n] == 1 -> free(n); printf("the key on node %d expires\n", n) \
	:: else \
	fi; \
	READERS_ON(AGE_ENTRY, n) \
	AGE_MARKER(n); \
	if \
	:: quarantine[n] > 0 -> quarantine[n]-- \
	:: else \
	fi;

#define AGE_CLIENT(c) \
	if \
	:: pledge[c] > 1 -> pledge[c]-- \
	:: pledge[c] == 1 -> pledge[c] = 0; forget_answers(c) \
	:: else \
	fi; \
	if \
	:: validity[c] > 0 -> validity[c]-- \
	:: else \
	fi;

#define LAPSE_WRITER(c) if :: validity[c] == 0 && state[c] != IDLE -> write_finish(c) :: else fi;
#define LAPSE_READER(c) if :: validity[c] == 0 && state[c] != IDLE -> read_finish(c) :: else fi;

#define ENTRIES(n, c) + ENTRY(n, c)
#define AGE_MORTAL(c) \
	if \
	:: since[c] > 0 -> since[c]-- \
	:: else \
	fi; \
	gone = gone && (since[c] != 1 || (0 NODES_OF(ENTRIES, c)) == 0);

inline tick() {
	printf("--- a tick\n");
	NODES(AGE_NODE)
	CLIENT(AGE_CLIENT)
	WRITER(LAPSE_WRITER)
	READER(LAPSE_READER)
#ifdef MORTAL
	READER(AGE_MORTAL)
	claim()
#endif
}

/*
 * No rule names a node, so states that differ only in the order of the nodes
 * behave alike: SORTED keeps one of each such set.
 */
#define ENTRY_PLACE(n, c) * 10 + 2 * ENTRY(n, c) + OVER(n, c)
#if READERS == 2
#define ENTRIES_PLACE(n, x) (((x) ENTRY_PLACE(n, WRITERS)) ENTRY_PLACE(n, WRITERS + 1))
#else
#define ENTRIES_PLACE(n, x) ((x) ENTRY_PLACE(n, WRITERS))
#endif
#define PLACE(n) ENTRIES_PLACE(n, (((key[n] * 5 + life[n]) * 5 + marker[n]) * 5 + quarantine[n]) * 8 + yes[n])

inline swap(a, b) { tmp = a; a = b; b = tmp }

inline swap_entries(a, b, c) {
	swap(ENTRY(a, c), ENTRY(b, c)); swap(OVER(a, c), OVER(b, c))
}

inline order(a, b) {
	if
	:: PLACE(a) > PLACE(b) ->
		swap(key[a], key[b]); swap(life[a], life[b]); swap(marker[a], marker[b]);
		swap(quarantine[a], quarantine[b]); swap(yes[a], yes[b]);
#if READERS == 2
		swap_entries(a, b, WRITERS + 1);
#endif
		swap_entries(a, b, WRITERS)
	:: else
	fi
}

inline sort() {
#if N == 5
	order(0, 1); order(1, 2); order(2, 3); order(3, 4);
	order(0, 1); order(1, 2); order(2, 3);
#endif
	order(0, 1); order(1, 2); order(0, 1);
	tmp = 0
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define OWN_KEY(n, c)   (key[n] == OF(c))
#define OWN_ENTRY(n, c) (ENTRY(n, c) > 0 && !OVER(n, c))

#define WRITE(n, c)       WRITE_FOR(n, c, TTL_FOR(c)) WRITE_FOR(n, c, TTL_FOR(c) - NODE_FAST)
#define READ(n, c)        READ_FOR(n, c, TTL_FOR(c)) READ_FOR(n, c, TTL_FOR(c) - NODE_FAST)

#define WRITE_FOR(n, c, span) \
	:: STEP { state[c] == TRYING && ADMITTED(n) && FREE_TO_WRITE(n) -> write_grant(n, c, span) } \
	:: STEP { state[c] == HELD && ADMITTED(n) && FREE_TO_WRITE(n) -> write_unasked(n, c, span) } \
	:: STEP { state[c] == HELD && pledge[c] > 0 && ADMITTED(n) && OWN_KEY(n, c) -> write_extend(n, c, span); say_yes(n, c) } \
	:: STEP { state[c] == HELD && pledge[c] == 0 && ADMITTED(n) && OWN_KEY(n, c) -> write_extend(n, c, span) }

#define READ_FOR(n, c, span) \
	:: STEP { state[c] == TRYING && ADMITTED(n) && FREE_TO_READ(n) && !OWN_ENTRY(n, c) -> read_grant(n, c, span) } \
	:: STEP { state[c] == HELD && ADMITTED(n) && FREE_TO_READ(n) && !OWN_ENTRY(n, c) -> read_unasked(n, c, span) } \
	:: STEP { state[c] == HELD && pledge[c] > 0 && ADMITTED(n) && OWN_ENTRY(n, c) -> read_extend(n, c, span); say_yes(n, c) } \
	:: STEP { state[c] == HELD && pledge[c] == 0 && ADMITTED(n) && OWN_ENTRY(n, c) -> read_extend(n, c, span) }

#define WRITE_AGAIN(n, c) :: STEP { state[c] == TRYING && ADMITTED(n) && OWN_KEY(n, c) && SILENT(n, c) -> grant_again(n, c) }
#define READ_AGAIN(n, c)  :: STEP { state[c] == TRYING && ADMITTED(n) && OWN_ENTRY(n, c) && SILENT(n, c) -> grant_again(n, c) }
#define SILENT(n, c)      (((yes[n] >> (c)) & 1) == 0)

#define LATE_WRITE_RELEASE(n) :: STEP { key[n] == FINISHED -> late_write_release(n) }
#ifdef COUNTED            /* the node has the number of its readers, and no names */
#define LATE_READ_RELEASE(n, c) :: STEP { (0 READER(PAST)) > 0 && ENTRY(n, c) > 0 -> count_down(n, c) }
#define PAST(c)           + past[c]
#else
#define LATE_READ_RELEASE(n, c) :: STEP { past[c] && ENTRY(n, c) > 0 && OVER(n, c) -> late_read_release(n, c) }
#endif

#ifdef MORTAL
#define LATE_WRITE(n, c)
#define LATE_READ(n, c)
#define MAY_START(c)      (since[c] == 0)
#else
#define LATE_WRITE(n, c)  LATE_WRITE_FOR(n, c, TTL_FOR(c)) LATE_WRITE_FOR(n, c, TTL_FOR(c) - NODE_FAST)
#define LATE_READ(n, c)   LATE_READ_FOR(n, c, TTL_FOR(c)) LATE_READ_FOR(n, c, TTL_FOR(c) - NODE_FAST)
#define MAY_START(c)      true
#endif
#define LATE_WRITE_FOR(n, c, span) :: STEP { past[c] && ADMITTED(n) && (FREE_TO_WRITE(n) || key[n] == FINISHED) -> late_write(n, span) }
#define LATE_READ_FOR(n, c, span)  :: STEP { past[c] && ADMITTED(n) && FREE_TO_READ(n) && !OWN_ENTRY(n, c) -> late_read(n, c, span) }

#define CRASH(n)          :: STEP { quarantine[n] < IN_QUARANTINE || key[n] != NOBODY || marker[n] > 0 -> crash(n) }

#define START(c)          :: STEP { state[c] == IDLE && MAY_START(c) -> start(c) }
#define HOLD(c)           :: STEP { state[c] == TRYING && COUNT(c) >= NEEDS(c) -> hold(c) }
#define BEGIN_ROUND(c)    :: STEP { state[c] == HELD -> begin_round(c) }
#define COUNT_ROUND(c)    :: STEP { state[c] == HELD && pledge[c] > 0 && COUNT(c) >= QUORUM -> count_round(c) }
#define WRITE_FINISH(c)   :: STEP { state[c] != IDLE -> write_finish(c) }
#define READ_FINISH(c)    :: STEP { state[c] != IDLE -> read_finish(c) }

#define STEPS \
	WRITER_LINKS(WRITE) \
	WRITER_LINKS(WRITE_AGAIN) \
	WRITER_LINKS(LATE_WRITE) \
	NODES(LATE_WRITE_RELEASE) \
	READER_LINKS(READ) \
	READER_LINKS(READ_AGAIN) \
	READER_LINKS(LATE_READ) \
	READER_LINKS(LATE_READ_RELEASE) \
	NODES(CRASH) \
	CLIENT(START) \
	CLIENT(HOLD) \
	CLIENT(BEGIN_ROUND) \
	CLIENT(COUNT_ROUND) \
	WRITER(WRITE_FINISH) \
	READER(READ_FINISH) \
	:: STEP { (0 NODES(NODE_TIMERS) CLIENT(CLIENT_TIMERS)) > 0 -> tick() }

active proctype system() {
end:	do
#ifdef SORTED
	:: atomic { if STEPS fi; d_step { sort() } }
#else
	STEPS
#endif
	od
}
