/*
 * The lock over N nodes, in discrete time: acquire, release, extend, repair,
 * crash with loss of memory, quarantine. README.md says what stands for
 * what in the code, and what is left out.
 *
 * There is no clock to read. Every span is a timer that counts down in true
 * time: the life of a key on its node, a client's validity, a restarted
 * node's quarantine. A clock that runs wrong makes its spans come out shorter
 * or longer than was asked for: a node's by up to NODE_FAST ticks less, a
 * client's by up to CLIENT_SLOW ticks more. The opposite errors (a slow node,
 * a fast client) refuse longer and stop sooner.
 *
 * The network is the worst there is: a message, once sent, is executed at any
 * later moment, in any order, any number of times or never, also after the
 * attempt it belongs to is over. So no message is stored: what may be executed
 * follows from what its sender has done. Answers may be as slow: a client
 * decides on those it has at any later moment, or never.
 */
#ifndef N
#define N 3            /* nodes: 1, 3, 4 or 5 */
#endif
#ifndef CLIENTS
#define CLIENTS 2      /* 2 or 3 */
#endif
#ifndef TTL
#define TTL 3          /* ticks a node is asked to keep a key for */
#endif
#ifndef NODE_FAST
#define NODE_FAST 1
#endif
#ifndef CLIENT_SLOW
#define CLIENT_SLOW 0
#endif
#ifndef QUARANTINE
#define QUARANTINE (TTL + 1)
#endif

/* Whose a key is: nobody's, the attempt's a client is at, or a finished attempt's. */
#define NOBODY 0
#define OF(c) (1 + (c))
#ifdef ONE_ID
#define FINISHED(c) OF(c)
#else
#define FINISHED(c) (1 + CLIENTS)
#endif

/* What a client is at. LAPSED is reached only where a rule is off. */
#define IDLE 0
#define TRYING 1
#define HELD 2
#define LAPSED 3

byte key[N], life[N], quarantine[N];
byte yes[N];              /* bit c: this node said yes to what client c is asking now */
byte state[CLIENTS], validity[CLIENTS];
byte pledge[CLIENTS];     /* what validity becomes if the extension under way is confirmed */
bit overtaken[CLIENTS];   /* another has held since this one did */
bit past[CLIENTS];        /* there have been attempts before, and their messages are still about */

byte i, j, tmp;           /* scratch, back at 0 after every step */

/* What must hold. PROPERTY=name checks that one alone. */
bit exclusive = 1;        /* no two validities run at once */
bit unbroken = 1;         /* who is extended was not overtaken since it won: one hold, one token */
bit lost_is_final = 1;    /* who is extended had validity left */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(exclusive); assert(unbroken); assert(lost_is_final);
#endif
	exclusive = 1; unbroken = 1; lost_is_final = 1
}

#define FREE(n) (key[n] == NOBODY)

/* Options and sums, spelled out: one process without variables of its own keeps a state small. */
#if N == 1
#define NODES(S) S(0)
#define NODES_OF(S, c) S(0, c)
#elif N == 3
#define NODES(S) S(0) S(1) S(2)
#define NODES_OF(S, c) S(0, c) S(1, c) S(2, c)
#elif N == 4
#define NODES(S) S(0) S(1) S(2) S(3)
#define NODES_OF(S, c) S(0, c) S(1, c) S(2, c) S(3, c)
#elif N == 5
#define NODES(S) S(0) S(1) S(2) S(3) S(4)
#define NODES_OF(S, c) S(0, c) S(1, c) S(2, c) S(3, c) S(4, c)
#else
#error "N is 1, 3, 4 or 5"
#endif
#if CLIENTS == 2
#define CLIENT(S) S(0) S(1)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#elif CLIENTS == 3
#define CLIENT(S) S(0) S(1) S(2)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1) NODES_OF(S, 2)
#else
#error "CLIENTS is 2 or 3"
#endif

#define SAID_YES(n, c) + ((yes[n] >> (c)) & 1)
#define COUNT(c) (0 NODES_OF(SAID_YES, c))

/* ---- the rules, each with the switch that turns it off ---- */

#ifdef HALF_IS_ENOUGH
#define QUORUM (N / 2)
#else
#define QUORUM (N / 2 + 1)
#endif
#ifdef QUORUM_OF_REACHABLE /* those out of reach are not counted: one answer may be all there are */
#define ELECTED(c) (COUNT(c) >= 1)
#else
#define ELECTED(c) (COUNT(c) >= QUORUM)
#endif

#ifdef NO_DRIFT
#define VALIDITY TTL
#else
#define VALIDITY (TTL - NODE_FAST - CLIENT_SLOW)
#endif

#ifdef NO_QUARANTINE
#define IN_QUARANTINE 0
#else /* the shortest a quarantine can come out: a longer one only refuses more */
#define IN_QUARANTINE (QUARANTINE - NODE_FAST)
#endif

#define ADMITTED(n) (quarantine[n] == 0)
#ifdef QUARANTINE_ACQUIRE_ONLY
#define OPEN_TO_HOLDER(n) true
#else
#define OPEN_TO_HOLDER(n) ADMITTED(n)
#endif

/* The key is the one this message names. A message of a holder that may create takes a free node too. */
#ifdef RELEASE_WITHOUT_COMPARE
#define RELEASES(n, c) (key[n] != NOBODY)
#else
#define RELEASES(n, c) (key[n] == FINISHED(c))
#endif
#ifdef EXTEND_RECREATES
#define EXTENDS(n, c) (key[n] == OF(c) || FREE(n))
#else
#define EXTENDS(n, c) (key[n] == OF(c))
#endif

#ifdef EXTEND_AFTER_LAPSE
#define MAY_EXTEND(c) (state[c] == HELD || state[c] == LAPSED)
#else
#define MAY_EXTEND(c) (state[c] == HELD)
#endif

/* ---- one message executed on one node ---- */

inline store(n, owner, span) { key[n] = owner; life[n] = span }

inline drop(n) { key[n] = NOBODY; life[n] = 0 }

inline say_yes(n, c) { yes[n] = yes[n] | (1 << (c)) }

inline grant(n, c, span) {
	store(n, OF(c), span); say_yes(n, c); printf("node %d grants client %d, for %d ticks\n", n, c, life[n])
}

/* A repeated message finds its own id: granted again, and nothing changed. */
inline grant_again(n, c) { say_yes(n, c) }

/* A straggler: the attempt has been decided, the vote does not count. */
inline grant_late(n, c, span) {
	store(n, OF(c), span); printf("node %d grants client %d late, for %d ticks\n", n, c, life[n])
}

inline extend(n, c, span) {
	store(n, OF(c), span); say_yes(n, c); printf("node %d extends client %d, to %d ticks\n", n, c, life[n])
}

/* A message of a round that is over. */
inline extend_late(n, c, span) { store(n, OF(c), span) }

inline repair(n, c, span) {
	store(n, OF(c), span); printf("node %d is repaired for client %d, for %d ticks\n", n, c, life[n])
}

inline late_release(n, c) {
	drop(n); printf("node %d: a late release of client %d deletes the key\n", n, c)
}

/* A finished attempt's acquire, repair or extension. */
inline late_store(n, c, span) {
	store(n, FINISHED(c), span); printf("node %d: a late message of client %d stores a key\n", n, c)
}

inline crash(n) {
	drop(n); quarantine[n] = IN_QUARANTINE; printf("node %d restarts with nothing in memory\n", n)
}

/* ---- what a client does ---- */

#define FORGET(n, c) yes[n] = yes[n] & ~(1 << (c));

inline forget_answers(c) { NODES_OF(FORGET, c) }

#define OVERTAKE(c) overtaken[c] = (state[c] == HELD || state[c] == LAPSED);
#define HOLDS(c) + (state[c] == HELD)

inline start(c, span) {
	state[c] = TRYING; validity[c] = span;
	printf("client %d starts an attempt, validity %d\n", c, validity[c])
}

inline hold(c) {
	CLIENT(OVERTAKE) state[c] = HELD; forget_answers(c);
	printf("client %d holds, validity left %d\n", c, validity[c]);
	exclusive = ((0 CLIENT(HOLDS)) <= 1); claim()
}

/* Also before the last round was answered: its answers no longer count. */
inline begin_round(c, span) {
#ifndef MIX_ROUNDS
	forget_answers(c);
#endif
	pledge[c] = span;
	printf("client %d sends an extension, validity left %d\n", c, validity[c])
}

inline count_round(c) {
	unbroken = !overtaken[c]; lost_is_final = (state[c] == HELD);
#ifdef EXTENSION_FROM_ANSWER
	validity[c] = VALIDITY;
#else
	validity[c] = pledge[c];
#endif
	state[c] = HELD; pledge[c] = 0; forget_answers(c);
	printf("client %d is extended, validity left %d\n", c, validity[c]);
	exclusive = ((0 CLIENT(HOLDS)) <= 1); claim()
}

/* Released, given up or lapsed: releases are sent. The keys stay until one arrives or their lives end. */
inline finish(c) {
	for (i : 0 .. N-1) {
		if
		:: key[i] == OF(c) -> key[i] = FINISHED(c)
		:: else
		fi
	}
	i = 0;
	forget_answers(c); state[c] = IDLE; validity[c] = 0; pledge[c] = 0; overtaken[c] = 0; past[c] = 1;
	printf("client %d is done with its attempt\n", c)
}

inline out_of_validity(c) {
#if defined(VALIDITY_UNCHECKED)
	skip
#elif defined(LATE_QUORUM)
	if
	:: state[c] == HELD -> finish(c)
	:: else
	fi
#elif defined(EXTEND_AFTER_LAPSE)
	if
	:: state[c] == HELD && pledge[c] > 0 -> state[c] = LAPSED; printf("client %d lapses\n", c)
	:: else -> finish(c)
	fi
#else
	finish(c)
#endif
}

/* ---- time ---- */

#define NODE_TIMERS(n)   + life[n] + quarantine[n]
#define CLIENT_TIMERS(c) + validity[c] + pledge[c]

inline tick() {
	printf("--- a tick\n");
	for (j : 0 .. N-1) {
		if
		:: life[j] > 1 -> life[j]--
		:: life[j] == 1 -> drop(j); printf("the key on node %d expires\n", j)
		:: else
		fi;
		if
		:: quarantine[j] > 0 -> quarantine[j]--
		:: else
		fi
	}
	for (j : 0 .. CLIENTS-1) {
		if
		:: pledge[j] > 1 -> pledge[j]--
		:: pledge[j] == 1 -> pledge[j] = 0; forget_answers(j)
		:: else
		fi;
		if
		:: validity[j] > 0 -> validity[j]--
		:: else
		fi;
		if
		:: validity[j] == 0 && state[j] != IDLE -> out_of_validity(j)
		:: else
		fi
	}
	j = 0
}

/*
 * No rule names a node, so states that differ only in the order of the nodes
 * behave alike: SORTED keeps one of each such set, for the larger sizes.
 */
#define AFTER(a, b) (key[a] > key[b] || (key[a] == key[b] && (life[a] > life[b] || \
	(life[a] == life[b] && (quarantine[a] > quarantine[b] || (quarantine[a] == quarantine[b] && yes[a] > yes[b]))))))

inline swap(a, b) { tmp = a; a = b; b = tmp }

inline order(a, b) {
	if
	:: AFTER(a, b) -> swap(key[a], key[b]); swap(life[a], life[b]); swap(quarantine[a], quarantine[b]); swap(yes[a], yes[b])
	:: else
	fi
}

inline sort() {
#if N == 5
	order(0, 1); order(1, 2); order(2, 3); order(3, 4);
#endif
#if N >= 4
	order(0, 1); order(1, 2); order(2, 3);
#endif
#if N >= 3
	order(0, 1); order(1, 2); order(0, 1);
#endif
	tmp = 0
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define GRANT(n, c)      GRANT_FOR(n, c, TTL) GRANT_FOR(n, c, TTL - NODE_FAST)
#define STRAGGLE(n, c)   STRAGGLE_FOR(n, c, TTL) STRAGGLE_FOR(n, c, TTL - NODE_FAST)
#define EXTEND(n, c)     EXTEND_FOR(n, c, TTL) EXTEND_FOR(n, c, TTL - NODE_FAST)
#define DRAG(n, c)       DRAG_FOR(n, c, TTL) DRAG_FOR(n, c, TTL - NODE_FAST)
#define REPAIR(n, c)     REPAIR_FOR(n, c, TTL) REPAIR_FOR(n, c, TTL - NODE_FAST)
#define LATE_STORE(n, c) LATE_STORE_FOR(n, c, TTL) LATE_STORE_FOR(n, c, TTL - NODE_FAST)
#define START(c)         START_FOR(c, VALIDITY) START_FOR(c, VALIDITY + CLIENT_SLOW)
#define BEGIN_ROUND(c)   ROUND_FOR(c, VALIDITY) ROUND_FOR(c, VALIDITY + CLIENT_SLOW)

#define GRANT_FOR(n, c, span)      :: STEP { state[c] == TRYING && ADMITTED(n) && FREE(n) -> grant(n, c, span) }
#define GRANT_AGAIN(n, c)          :: STEP { state[c] == TRYING && ADMITTED(n) && key[n] == OF(c) -> grant_again(n, c) }
#define STRAGGLE_FOR(n, c, span)   :: STEP { state[c] >= HELD && ADMITTED(n) && FREE(n) -> grant_late(n, c, span) }
#define EXTEND_FOR(n, c, span)     :: STEP { MAY_EXTEND(c) && pledge[c] > 0 && OPEN_TO_HOLDER(n) && EXTENDS(n, c) -> extend(n, c, span) }
#define DRAG_FOR(n, c, span)       :: STEP { state[c] >= HELD && pledge[c] == 0 && OPEN_TO_HOLDER(n) && EXTENDS(n, c) -> extend_late(n, c, span) }
#define REPAIR_FOR(n, c, span)     :: STEP { state[c] == HELD && OPEN_TO_HOLDER(n) && FREE(n) -> repair(n, c, span) }
#define LATE_RELEASE(n, c)         :: STEP { past[c] && RELEASES(n, c) -> late_release(n, c) }
#define LATE_STORE_FOR(n, c, span) :: STEP { past[c] && ADMITTED(n) && (FREE(n) || key[n] == FINISHED(c)) -> late_store(n, c, span) }
#define CRASH(n)                   :: STEP { quarantine[n] < IN_QUARANTINE || !FREE(n) -> crash(n) }

#define START_FOR(c, span) :: STEP { state[c] == IDLE -> start(c, span) }
#define HOLD(c)            :: STEP { state[c] == TRYING && ELECTED(c) -> hold(c) }
#define ROUND_FOR(c, span) :: STEP { state[c] == HELD -> begin_round(c, span) }
#define COUNT_ROUND(c)     :: STEP { MAY_EXTEND(c) && pledge[c] > 0 && COUNT(c) >= QUORUM -> count_round(c) }
#define FINISH(c)          :: STEP { state[c] != IDLE -> finish(c) }

#define STEPS \
	LINKS(GRANT) \
	LINKS(GRANT_AGAIN) \
	LINKS(STRAGGLE) \
	LINKS(EXTEND) \
	LINKS(DRAG) \
	LINKS(REPAIR) \
	LINKS(LATE_RELEASE) \
	LINKS(LATE_STORE) \
	NODES(CRASH) \
	CLIENT(START) \
	CLIENT(HOLD) \
	CLIENT(BEGIN_ROUND) \
	CLIENT(COUNT_ROUND) \
	CLIENT(FINISH) \
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
