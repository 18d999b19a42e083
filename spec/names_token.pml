/*
 * One fencing token for several names over three nodes: token.pml, with a
 * key and a counter for each of two names. Attempt 1 wants both; attempt 0
 * both, or with ONE_NAME the first alone. A node grants all names of an attempt
 * or none. There is no time in it: each key ends at any moment, by itself,
 * which is also what a release does, executed late or by halves.
 *
 * README.md says what stands for what in the code. What of token.pml does not
 * differ for several names is left out: extension, repair, blocks.
 */
#ifndef MAX
#define MAX 3          /* the largest number a counter reaches: 3 or 4 */
#endif
#define N 3
#define ATTEMPTS 2
#define NAMES 2
#define QUORUM 2

#define NOBODY 0
#define OF(a) (1 + (a))

/* What an attempt is at. It may stop for good at any point. */
#define ASKING 0
#define CHOSEN 1       /* its token is chosen */
#define HELD 2         /* and stays so */

#ifdef ONE_NAME
#define WANTS(a, x) ((x) == 0 || (a) == 1)
#else
#define WANTS(a, x) true
#endif

byte key[N * NAMES], counter[N * NAMES];
byte reply[N * ATTEMPTS];   /* the number node n answered to attempt a, then the token once it is confirmed there */
byte state[ATTEMPTS], token[ATTEMPTS];
byte earlier[ATTEMPTS];     /* bit b: b held before this attempt was granted anything; bit 7: it has been granted something */

byte tmp;                   /* scratch, back at 0 after every step */

bit distinct = 1;           /* an attempt that wins has another token than each that held before */
bit ordered = 1;            /* and a larger one, if the other held before this one was granted anything */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(distinct); assert(ordered);
#endif
	distinct = 1; ordered = 1
}

#define KEY(n, x) key[(n) * NAMES + (x)]
#define COUNTER(n, x) counter[(n) * NAMES + (x)]
#define REPLY(n, a) reply[(n) * ATTEMPTS + (a)]

#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a)
#define NODES_FOR(S, a, v) S(0, a, v) S(1, a, v) S(2, a, v)
#define NODES_EACH(S) S(0, 0) S(0, 1) S(1, 0) S(1, 1) S(2, 0) S(2, 1)
#define ATTEMPT(S) S(0) S(1)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#if MAX == 3
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3)
#elif MAX == 4
#define NUMBERS(S, n, a) S(n, a, 1) S(n, a, 2) S(n, a, 3) S(n, a, 4)
#define TOKENS(S, a) S(a, 1) S(a, 2) S(a, 3) S(a, 4)
#else
#error "MAX is 3 or 4"
#endif

#define UP_TO(n, a, v)    + (REPLY(n, a) > 0 && REPLY(n, a) <= (v))
#define IS(n, a, v)       + (REPLY(n, a) == (v))

/* Of each name that the attempt wants. */
#define ALL(E, n, a, v) ((!WANTS(a, 0) || E(n, 0, a, v)) && (!WANTS(a, 1) || E(n, 1, a, v)))
#define SOME(E, n, a, v) ((WANTS(a, 0) && E(n, 0, a, v)) || (WANTS(a, 1) && E(n, 1, a, v)))

#define EMPTY(n, x, a, v)   (KEY(n, x) == NOBODY)
#define OWN(n, x, a, v)     (KEY(n, x) == OF(a))
#define BELOW(n, x, a, v)   (COUNTER(n, x) < (v))
#define UP_TO_NOW(n, x, a, v) (COUNTER(n, x) <= (v))
#define RIGHT_BELOW(n, x, a, v) (COUNTER(n, x) == (v) - 1)
#define SET_TO(n, x, a, v)  (COUNTER(n, x) == (v))
#define UNBROKEN(n, x, a, v) (KEY(n, x) == OF(a) && COUNTER(n, x) == (v))

/* ---- the rules, each with the switch that turns it off ---- */

#ifdef EACH_OWN /* each counter goes up by itself, and the largest is the answer */
#define RAISES(n, a, v) (ALL(BELOW, n, a, v) && SOME(RIGHT_BELOW, n, a, v))
#define RAISED(n, x, v) (COUNTER(n, x) + 1)
#else
#ifdef NOT_ABOVE /* the counter may be as large as before */
#define RAISES(n, a, v) ALL(UP_TO_NOW, n, a, v)
#else
#define RAISES(n, a, v) ALL(BELOW, n, a, v)
#endif
#define RAISED(n, x, v) (v)
#endif

#if defined(CONFIRM_SOME) /* one name whole is enough */
#define MAY_CONFIRM(n, a) SOME(UNBROKEN, n, a, REPLY(n, a))
#elif defined(EACH_OWN)
#define MAY_CONFIRM(n, a) ALL(OWN, n, a, 0)
#else
#define MAY_CONFIRM(n, a) ALL(UNBROKEN, n, a, REPLY(n, a))
#endif

/* ---- one message executed on one node ---- */

#define HAS_HELD(a) + ((state[a] == HELD) << (a))

inline grant_name(n, x, a, v) {
	if
	:: WANTS(a, x) -> KEY(n, x) = OF(a); COUNTER(n, x) = RAISED(n, x, v)
	:: else
	fi
}

inline grant(n, a, v) {
	grant_name(n, 0, a, v); grant_name(n, 1, a, v);
	if
	:: (earlier[a] >> 7) == 0 -> earlier[a] = 128 ATTEMPT(HAS_HELD)
	:: else
	fi;
	printf("node %d grants attempt %d under %d\n", n, a, v)
}

inline read(n, a, v) {
	REPLY(n, a) = v; printf("attempt %d reads %d from node %d\n", a, v, n)
}

inline store(n, x, a) {
	if
	:: WANTS(a, x) && COUNTER(n, x) < token[a] -> COUNTER(n, x) = token[a]
	:: else
	fi
}

inline confirm(n, a) {
	store(n, 0, a); store(n, 1, a);
	printf("node %d stores attempt %d's token %d\n", n, a, token[a])
}

inline expire(n, x) { KEY(n, x) = NOBODY; printf("the key of name %d on node %d ends\n", x, n) }

/* ---- what a client does ---- */

/* Who answered more does not count. */
#define PASS_OVER(n, a) if :: REPLY(n, a) > token[a] -> REPLY(n, a) = 0 :: else fi;

inline choose(a, v) {
	state[a] = CHOSEN; token[a] = v; printf("attempt %d takes %d as its token\n", a, v);
	NODES_OF(PASS_OVER, a)
}

#define COMPARE(b) \
	distinct = distinct && (state[b] != HELD || token[b] != token[a]); \
	ordered = ordered && (((earlier[a] >> (b)) & 1) == 0 || token[b] < token[a]);

#define CLEAR(n, a) REPLY(n, a) = 0;

inline hold(a) {
	printf("attempt %d holds with token %d\n", a, token[a]);
	ATTEMPT(COMPARE)
	claim();
	state[a] = HELD; earlier[a] = 128;
	NODES_OF(CLEAR, a)
}

/* No rule names a node: of the states that differ only in the order of the nodes SORTED keeps one. */
#define PLACE(n) (((((KEY(n, 0) * 3 + KEY(n, 1)) * 5 + COUNTER(n, 0)) * 5 + COUNTER(n, 1)) * 5 + REPLY(n, 0)) * 5 + REPLY(n, 1))

inline swap(x, y) { tmp = x; x = y; y = tmp }

inline order(m, n) {
	if
	:: PLACE(m) > PLACE(n) ->
		swap(KEY(m, 0), KEY(n, 0)); swap(KEY(m, 1), KEY(n, 1));
		swap(COUNTER(m, 0), COUNTER(n, 0)); swap(COUNTER(m, 1), COUNTER(n, 1));
		swap(REPLY(m, 0), REPLY(n, 0)); swap(REPLY(m, 1), REPLY(n, 1))
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

#define GRANT(n, a) NUMBERS(GRANT_READ, n, a) NUMBERS(GRANT_LOST, n, a) NUMBERS(GRANT_AGAIN, n, a)
#define GRANT_READ(n, a, v)  :: STEP { ALL(EMPTY, n, a, v) && RAISES(n, a, v) && READABLE(n, a, v) -> grant(n, a, v); read(n, a, v) }
#define GRANT_LOST(n, a, v)  :: STEP { ALL(EMPTY, n, a, v) && RAISES(n, a, v) -> grant(n, a, v) }
#define GRANT_AGAIN(n, a, v) :: STEP { ALL(OWN, n, a, v) && ALL(SET_TO, n, a, v) && READABLE(n, a, v) -> read(n, a, v) }

#define CONFIRMS(n, a)      (state[a] == CHOSEN && REPLY(n, a) > 0 && REPLY(n, a) < token[a] && MAY_CONFIRM(n, a))
#define CONFIRM(n, a)       :: STEP { CONFIRMS(n, a) -> confirm(n, a); REPLY(n, a) = token[a] }
#define CONFIRM_LOST(n, a)  :: STEP { CONFIRMS(n, a) -> confirm(n, a) }
#define EXPIRE(n, x)        :: STEP { KEY(n, x) != NOBODY -> expire(n, x) }

#define CHOOSE(a)           TOKENS(CHOOSE_FOR, a)
#define CHOOSE_FOR(a, v)    :: STEP { state[a] == ASKING && (0 NODES_FOR(IS, a, v)) > 0 && (0 NODES_FOR(UP_TO, a, v)) >= QUORUM -> choose(a, v) }
#define HOLD(a)             :: STEP { state[a] == CHOSEN && (0 NODES_FOR(IS, a, token[a])) >= QUORUM -> hold(a) }

#define STEPS \
	LINKS(GRANT) \
	LINKS(CONFIRM) \
	LINKS(CONFIRM_LOST) \
	NODES_EACH(EXPIRE) \
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
