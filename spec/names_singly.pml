/*
 * Several names over N nodes by clients who take them one by one: each name by an
 * attempt of its own, in order, then all by one attempt that takes the places of
 * these (names.pml has those who try for all at once). There is no time in it but
 * that the key of one name may end at any moment, as what a client has of it is
 * kept only to keep others out: nothing rests on it. What the attempt for all has stays.
 *
 * Client 0 wants names 0 and 1, client 1 names 1 and 2, client 2 names 2 and 0:
 * any two want one name. A message is executed at any later moment, or never; one that
 * is executed when its attempt is over keeps others out at most, and is in names.pml.
 * README.md says what stands for what in the code.
 */
#ifndef N
#define N 3
#endif
#ifndef CLIENTS
#define CLIENTS 2      /* 2 or 3 */
#endif
#define NAMES 3
#define QUORUM (N / 2 + 1)

#define NOBODY 0
#define ALL(c) (1 + (c))    /* by the attempt for both names */
#define ONE(c) (4 + (c))    /* by that for one of them */

/* What a client is at. */
#define IDLE 0
#define FIRST 1        /* asks for the first of its names */
#define SECOND 2       /* has it, by its answers, and asks for the second */
#define BOTH 3         /* has both so, and asks for all at once */
#define HELD 4

#ifdef UNSORTED        /* as the caller gave them */
#define A(c) (c)
#define B(c) (((c) + 1) % NAMES)
#else
#define A(c) ((c) - 2 * ((c) == 2))
#define B(c) ((c) + 1 - ((c) == 2))
#endif
#define WANTED(c) ((state[c] == FIRST) * A(c) + (state[c] != FIRST) * B(c))

byte key[N * NAMES];
bit answer[N * CLIENTS];    /* a yes to what the client asks for now */
byte state[CLIENTS];

bit exclusive = 1;          /* no two that hold want one name */
bit whole = 1;              /* who holds has each of its names on a quorum */
bit moves = 1;              /* of those who are about to take their names somebody does not wait for another of them */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(exclusive); assert(whole); assert(moves);
#endif
	exclusive = 1; whole = 1; moves = 1
}

#define KEY(n, x) key[(n) * NAMES + (x)]
#define ANSWER(n, c) answer[(n) * CLIENTS + (c)]
#define FREE(n, x) (KEY(n, x) == NOBODY)

#if N == 3
#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a)
#define NODES_FOR(S, a, b) S(0, a, b) S(1, a, b) S(2, a, b)
#define NODES_EACH(S) S(0, 0) S(0, 1) S(0, 2) S(1, 0) S(1, 1) S(1, 2) S(2, 0) S(2, 1) S(2, 2)
#elif N == 1
#define NODES_OF(S, a) S(0, a)
#define NODES_FOR(S, a, b) S(0, a, b)
#define NODES_EACH(S) S(0, 0) S(0, 1) S(0, 2)
#else
#error "N is 1 or 3"
#endif
#if CLIENTS == 2
#define CLIENT(S) S(0) S(1)
#define CLIENT_OF(S, a) S(0, a) S(1, a)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#elif CLIENTS == 3
#define CLIENT(S) S(0) S(1) S(2)
#define CLIENT_OF(S, a) S(0, a) S(1, a) S(2, a)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1) NODES_OF(S, 2)
#else
#error "CLIENTS is 2 or 3"
#endif

#define SAID_YES(n, c)   + ANSWER(n, c)
#define HAS(n, c, x)     + (KEY(n, x) == ALL(c))

/* ---- the rules, each with the switch that turns it off ---- */

#define OWN(n, c, x) (FREE(n, x) || KEY(n, x) == ONE(c))
#ifdef REPLACE_ANY        /* of the second name it does not look at who has it */
#define MAY_REPLACE(n, c) OWN(n, c, A(c))
#else
#define MAY_REPLACE(n, c) (OWN(n, c, A(c)) && OWN(n, c, B(c)))
#endif

/* ---- one message executed on one node ---- */

inline grant(n, c, x) {
	KEY(n, x) = ONE(c); printf("node %d grants client %d name %d\n", n, c, x)
}

inline replace(n, c) {
	KEY(n, A(c)) = ALL(c); KEY(n, B(c)) = ALL(c);
	printf("node %d grants client %d both names\n", n, c)
}

/* ---- what a client does ---- */

#define FORGET(n, c) ANSWER(n, c) = 0;

inline next(c, s) {
	NODES_OF(FORGET, c)
	state[c] = s
}

#define COMPARE(d) exclusive = exclusive && state[d] != HELD;

inline hold(c) {
	printf("client %d holds names %d and %d\n", c, A(c), B(c));
	CLIENT(COMPARE)
	whole = (0 NODES_FOR(HAS, c, A(c))) >= QUORUM && (0 NODES_FOR(HAS, c, B(c))) >= QUORUM;
	claim();
	next(c, HELD)
}

#define LET_GO(n, c) \
	if :: KEY(n, A(c)) == ALL(c) || KEY(n, A(c)) == ONE(c) -> KEY(n, A(c)) = NOBODY :: else fi; \
	if :: KEY(n, B(c)) == ALL(c) || KEY(n, B(c)) == ONE(c) -> KEY(n, B(c)) = NOBODY :: else fi;

inline finish(c) {
	printf("client %d is done\n", c);
	NODES_OF(LET_GO, c)
	next(c, IDLE)
}

/* On one node: client c waits for client d, which has the name that it asks for. */
#define WAITS(c, d) ((state[c] == FIRST || state[c] == SECOND) && KEY(0, WANTED(c)) == ONE(d))
#define CIRCLE(c, d) moves = moves && !(WAITS(c, d) && WAITS(d, c));

inline look() {
#if CLIENTS == 3
	moves = !(WAITS(0, 1) && WAITS(1, 2) && WAITS(2, 0)) && !(WAITS(0, 2) && WAITS(2, 1) && WAITS(1, 0));
	CIRCLE(0, 1) CIRCLE(1, 2) CIRCLE(0, 2)
#else
	CIRCLE(0, 1)
#endif
	claim()
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define ASKS(n, c) ((state[c] == FIRST || state[c] == SECOND) && ANSWER(n, c) == 0)
#define ASKS_ALL(n, c) (state[c] == BOTH && ANSWER(n, c) == 0)

#define GRANT(n, c)        :: STEP { ASKS(n, c) && FREE(n, WANTED(c)) -> grant(n, c, WANTED(c)); ANSWER(n, c) = 1 }
#define GRANT_LOST(n, c)   :: STEP { ASKS(n, c) && FREE(n, WANTED(c)) -> grant(n, c, WANTED(c)) }
#define GRANT_AGAIN(n, c)  :: STEP { ASKS(n, c) && KEY(n, WANTED(c)) == ONE(c) -> ANSWER(n, c) = 1 }
#define LAPSE(n, x)        :: STEP { KEY(n, x) >= ONE(0) -> KEY(n, x) = NOBODY }

#define ALL_YES(n, c)      :: STEP { ASKS_ALL(n, c) && MAY_REPLACE(n, c) -> replace(n, c); ANSWER(n, c) = 1 }
#define ALL_LOST(n, c)     :: STEP { ASKS_ALL(n, c) && MAY_REPLACE(n, c) -> replace(n, c) }
#define ALL_AGAIN(n, c)    :: STEP { ASKS_ALL(n, c) && KEY(n, A(c)) == ALL(c) && KEY(n, B(c)) == ALL(c) -> ANSWER(n, c) = 1 }

#define WON(c) ((0 NODES_OF(SAID_YES, c)) >= QUORUM)
#define ASK(c)             :: STEP { state[c] == IDLE -> state[c] = FIRST }
#define GO_ON(c)           :: STEP { state[c] == FIRST && WON(c) -> next(c, SECOND) }
#ifdef NO_ATTEMPT          /* who has each name has all */
#define ALL_AT_ONCE(c)     :: STEP { state[c] == SECOND && WON(c) -> hold(c) }
#else
#define ALL_AT_ONCE(c)     :: STEP { state[c] == SECOND && WON(c) -> next(c, BOTH) }
#endif
#define HOLD(c)            :: STEP { state[c] == BOTH && WON(c) -> hold(c) }
#define FINISH(c)          :: STEP { state[c] != IDLE -> finish(c) }

active proctype system() {
end:	do
	LINKS(GRANT)
	LINKS(GRANT_LOST)
	LINKS(GRANT_AGAIN)
	NODES_EACH(LAPSE)
	LINKS(ALL_YES)
	LINKS(ALL_LOST)
	LINKS(ALL_AGAIN)
	CLIENT(ASK)
	CLIENT(GO_ON)
	CLIENT(ALL_AT_ONCE)
	CLIENT(HOLD)
	CLIENT(FINISH)
#ifdef CIRCLES
	:: STEP { look() }
#endif
	od
}
