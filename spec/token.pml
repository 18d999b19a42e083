/*
 * Fencing tokens over N nodes: grant with counters, confirm, hold, extend,
 * release, repair. There is no time in it. README.md says what stands for what
 * in the code, and what is left out.
 *
 * A key may expire at any moment, so nothing here rests on a clock. A
 * message, once sent, is executed at any later moment, in any order, any
 * number of times or never; so none is stored: what may be executed follows
 * from what its sender has done. An answer may be lost, and is read at any
 * later moment: a client decides on any of the answers there are.
 *
 * Every attempt is its own client: what a client does between its attempts
 * does not matter to the nodes.
 */
#ifndef N
#define N 3            /* nodes: 3 or 5 */
#endif
#ifndef ATTEMPTS
#define ATTEMPTS 2     /* 2 or 3 */
#endif
#ifndef MAX
#define MAX 4          /* the largest number a counter reaches: 3, 4 or 6 */
#endif

#ifndef BLOCK
#define BLOCK 1        /* how many tokens an attempt has for holders in turn: the last is the one it is granted under */
#endif

#define QUORUM (N / 2 + 1)

#define NOBODY 0
#ifdef ONE_ID
#define OF(a) 1
#else
#define OF(a) (1 + (a))
#endif

/* What an attempt is at. It may stop for good at any point: then nothing more happens to it. */
#define ASKING 0
#define CHOSEN 1       /* its token is chosen */
#define HELD 2         /* and stays so: the messages of a hold that is over are still about */

byte key[N], counter[N];
byte reply[N * ATTEMPTS];   /* the number node n answered to attempt a, then the token once it is confirmed there */
byte state[ATTEMPTS], token[ATTEMPTS];
byte earlier[ATTEMPTS];     /* bit b: b held before this attempt was granted anything; bit 7: it has been granted something */
byte tmp;                   /* scratch, back at 0 after every step */

/*
 * What must hold whenever an attempt wins, against every attempt that has held
 * before. PROPERTY=name checks that one alone.
 */
bit distinct = 1;               /* the tokens differ */
bit ordered = 1;                /* the other's is smaller if it held before this one was granted anything */
bit ordered_while_stored = 1;   /* and if a quorum still stores this one's key and token */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(distinct); assert(ordered); assert(ordered_while_stored);
#endif
	distinct = 1; ordered = 1; ordered_while_stored = 1
}

#define REPLY(n, a) reply[(n) * ATTEMPTS + (a)]
#define FREE(n) (key[n] == NOBODY)

/* Options and sums, spelled out: one process without variables of its own keeps a state small. */
#if N == 3
#define NODES(S) S(0) S(1) S(2)
#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a)
#define NODES_FOR(S, a, v) S(0, a, v) S(1, a, v) S(2, a, v)
#elif N == 5
#define NODES(S) S(0) S(1) S(2) S(3) S(4)
#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a) S(3, a) S(4, a)
#define NODES_FOR(S, a, v) S(0, a, v) S(1, a, v) S(2, a, v) S(3, a, v) S(4, a, v)
#else
#error "N is 3 or 5"
#endif
#if ATTEMPTS == 2
#define ATTEMPT(S) S(0) S(1)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#elif ATTEMPTS == 3
#define ATTEMPT(S) S(0) S(1) S(2)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1) NODES_OF(S, 2)
#else
#error "ATTEMPTS is 2 or 3"
#endif
#if MAX == 3
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3)
#elif MAX == 4
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3) S(n, a, 4)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3) S(a, 4)
#elif MAX == 6
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3) S(n, a, 4) S(n, a, 5) S(n, a, 6)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3) S(a, 4) S(a, 5) S(a, 6)
#else
#error "MAX is 3, 4 or 6"
#endif

#define GRANTED(n, a)     + (REPLY(n, a) > 0)
#define UP_TO(n, a, v)    + (REPLY(n, a) > 0 && REPLY(n, a) <= (v))
#define FROM(n, a, v)     + (REPLY(n, a) >= (v))
#define IS(n, a, v)       + (REPLY(n, a) == (v))
#define STORED_NOW(n, a)  + (key[n] == OF(a) && counter[n] == token[a])

/* ---- the rules, each with the switch that turns it off ---- */

#ifdef NO_WRITE_BACK
#define ELECTED(a) (0 NODES_OF(GRANTED, a) >= QUORUM)
#elif defined(COUNT_LARGER)            /* those that granted under more, too */
#define ELECTED(a) (0 NODES_FOR(FROM, a, token[a]) >= QUORUM)
#else
#define ELECTED(a) (0 NODES_FOR(IS, a, token[a]) >= QUORUM)
#endif

/* A quorum answered no more: it agrees, or this is its largest answer. Others may have answered more. */
#ifdef COUNT_LARGER
#define MAY_CHOOSE(a, v) ((0 NODES_FOR(IS, a, v)) > 0 && (0 NODES_OF(GRANTED, a)) >= QUORUM)
#else
#define MAY_CHOOSE(a, v) ((0 NODES_FOR(IS, a, v)) > 0 && (0 NODES_FOR(UP_TO, a, v)) >= QUORUM)
#endif

#if defined(WRITE_BACK_UNGUARDED)      /* to any node */
#define MAY_CONFIRM(n, a) (REPLY(n, a) != token[a])
#elif defined(WRITE_BACK_BY_ID_ONLY)
#define MAY_CONFIRM(n, a) (REPLY(n, a) > 0 && REPLY(n, a) < token[a] && key[n] == OF(a))
#elif defined(WRITE_BACK_BY_COUNTER_ONLY)
#define MAY_CONFIRM(n, a) (REPLY(n, a) > 0 && REPLY(n, a) < token[a] && counter[n] == REPLY(n, a))
#else
#define MAY_CONFIRM(n, a) (REPLY(n, a) > 0 && REPLY(n, a) < token[a] && key[n] == OF(a) && counter[n] == REPLY(n, a))
#endif

#ifdef GRANT_NOT_RAISING /* the client's time alone, where the counter is not ahead of it */
#define RAISES(n, v) (counter[n] <= (v))
#elif defined(BLOCK_NOT_RAISED)  /* its last token alone is past the counter */
#define RAISES(n, v) (counter[n] < (v))
#else
#define RAISES(n, v) (counter[n] + BLOCK <= (v))
#endif

/* ---- one message executed on one node ---- */

#define HAS_HELD(a) + ((state[a] == HELD) << (a))

inline raise(n, v) {
	if
	:: counter[n] < v -> counter[n] = v
	:: else
	fi
}

inline grant(n, a, v) {
	key[n] = OF(a); counter[n] = v;
	if
	:: (earlier[a] >> 7) == 0 -> earlier[a] = 128 ATTEMPT(HAS_HELD)
	:: else
	fi;
	printf("node %d grants attempt %d under %d\n", n, a, v)
}

inline read(n, a, v) {
	REPLY(n, a) = v; printf("attempt %d reads %d from node %d\n", a, v, n)
}

inline confirm(n, a) {
	raise(n, token[a]); REPLY(n, a) = token[a];
	printf("node %d stores attempt %d's token %d; its counter is %d\n", n, a, token[a], counter[n])
}

inline extend(n, a) { raise(n, token[a]) }

inline release(n, a) {
	raise(n, token[a]); key[n] = NOBODY; printf("node %d releases attempt %d\n", n, a)
}

inline repair(n, a) {
	key[n] = OF(a); raise(n, token[a]); printf("node %d is repaired for attempt %d\n", n, a)
}

inline expire(n) { key[n] = NOBODY; printf("the key on node %d expires\n", n) }

/* ---- what a client does ---- */

/* Who answered more does not count, whether the answer came before the token was chosen or after. */
#ifdef COUNT_LARGER
#define PASS_OVER(n, a)
#else
#define PASS_OVER(n, a) if :: REPLY(n, a) > token[a] -> REPLY(n, a) = 0 :: else fi;
#endif

inline choose(a, v) {
	state[a] = CHOSEN; token[a] = v; printf("attempt %d takes %d as its token\n", a, v);
	NODES_OF(PASS_OVER, a)
}

/* That a quorum still stores the token beside the key is what running validity means where clocks are right. */
#define COMPARE(b) \
	distinct = distinct && (state[b] != HELD || token[b] + BLOCK <= token[a] || token[a] + BLOCK <= token[b]); \
	ordered = ordered && (((earlier[a] >> (b)) & 1) == 0 || token[b] + BLOCK <= token[a]); \
	ordered_while_stored = ordered_while_stored && (state[b] != HELD || token[b] + BLOCK <= token[a]);

#define CLEAR(n, a) REPLY(n, a) = 0;

inline hold(a) {
	printf("attempt %d holds with token %d\n", a, token[a]);
	ATTEMPT(COMPARE)
	ordered_while_stored = ordered_while_stored || (0 NODES_OF(STORED_NOW, a) < QUORUM);
	claim();
	state[a] = HELD; earlier[a] = 128;
	NODES_OF(CLEAR, a)
}

/*
 * No rule names a node or an attempt, so states that differ only in their
 * order behave alike: SORTED keeps one of each such set, nodes in the order of
 * what they store, attempts in the order of their first grants.
 */
#if ATTEMPTS == 3
#define REPLY2(n) REPLY(n, 2)
#else
#define REPLY2(n) 0
#endif
#define AFTER(m, n) (key[m] > key[n] || (key[m] == key[n] && (counter[m] > counter[n] || \
	(counter[m] == counter[n] && (REPLY(m, 0) > REPLY(n, 0) || (REPLY(m, 0) == REPLY(n, 0) && \
	(REPLY(m, 1) > REPLY(n, 1) || (REPLY(m, 1) == REPLY(n, 1) && REPLY2(m) > REPLY2(n)))))))))

inline swap(x, y) { tmp = x; x = y; y = tmp }

inline order(m, n) {
	if
	:: AFTER(m, n) ->
		swap(key[m], key[n]); swap(counter[m], counter[n]);
#if ATTEMPTS == 3
		swap(REPLY(m, 2), REPLY(n, 2));
#endif
		swap(REPLY(m, 0), REPLY(n, 0)); swap(REPLY(m, 1), REPLY(n, 1))
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

#ifdef SORTED
#define IN_TURN(a) (a == 0 || earlier[(a + ATTEMPTS - 1) % ATTEMPTS] > 0)
#else
#define IN_TURN(a) true
#endif

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define READABLE(n, a, v) (REPLY(n, a) == 0 && (state[a] == ASKING || (state[a] == CHOSEN && (v) <= token[a])))

#define GRANT(n, a) NUMBERS(GRANT_READ, n, a) NUMBERS(GRANT_LOST, n, a)
#define GRANT_READ(n, a, v) :: STEP { FREE(n) && RAISES(n, v) && IN_TURN(a) && READABLE(n, a, v) -> grant(n, a, v); read(n, a, v) }
#define GRANT_LOST(n, a, v) :: STEP { FREE(n) && RAISES(n, v) && IN_TURN(a) -> grant(n, a, v) }
#define GRANT_AGAIN(n, a)   :: STEP { key[n] == OF(a) && READABLE(n, a, counter[n]) -> read(n, a, counter[n]) }
#define CONFIRM(n, a)       :: STEP { state[a] == CHOSEN && MAY_CONFIRM(n, a) -> confirm(n, a) }
#define EXTEND(n, a)        :: STEP { state[a] == HELD && key[n] == OF(a) && counter[n] < token[a] -> extend(n, a) }
#define RELEASE(n, a)       :: STEP { state[a] == HELD && key[n] == OF(a) -> release(n, a) }
#define REPAIR(n, a)        :: STEP { state[a] == HELD && FREE(n) -> repair(n, a) }
#define REPAIR_EARLY(n, a)  :: STEP { state[a] == CHOSEN && FREE(n) && counter[n] <= token[a] -> repair(n, a); REPLY(n, a) = token[a] }
#define EXPIRE(n)           :: STEP { !FREE(n) -> expire(n) }

#define CHOOSE(a)           TOKENS(CHOOSE_FOR, a)
#define CHOOSE_FOR(a, v)    :: STEP { state[a] == ASKING && MAY_CHOOSE(a, v) -> choose(a, v) }
#define HOLD(a)             :: STEP { state[a] == CHOSEN && ELECTED(a) -> hold(a) }

#ifdef REPAIR_BEFORE_QUORUM
#define REPAIRS LINKS(REPAIR) LINKS(REPAIR_EARLY)
#else
#define REPAIRS LINKS(REPAIR)
#endif

#define STEPS \
	LINKS(GRANT) \
	LINKS(GRANT_AGAIN) \
	LINKS(CONFIRM) \
	LINKS(EXTEND) \
	LINKS(RELEASE) \
	REPAIRS \
	NODES(EXPIRE) \
	ATTEMPT(CHOOSE) \
	ATTEMPT(HOLD)

active proctype system() {
end:	do
#ifdef SORTED
	:: atomic { if STEPS fi; d_step { sort() } }
#else
	STEPS
#endif
	od
}
