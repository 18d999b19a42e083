/*
 * Several names at once over N nodes: a node grants all names of an attempt or
 * none, and an attempt that failed is undone. There is no time in it: the
 * keys of an attempt that is under way, or holds, stay. What time does to
 * one name it does to several, which have one TTL (lock.pml); their tokens are
 * in names_token.pml. README.md says what stands for what in the code.
 *
 * Client 0 wants names 0 and 1, client 1 names 1 and 2, client 2 names 2 and 0:
 * any two want one name. A message is executed at any later moment, also after its
 * attempt is over, or never.
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
#define OF(c) (1 + (c))
#define LEFT 9         /* of an attempt that is over: its release is on its way */

/* What a client is at. */
#define IDLE 0
#define ASKING 1
#define HELD 2

#define FIRST(c) (c)
#define SECOND(c) (((c) + 1) % NAMES)

byte key[N * NAMES];
byte answer[N * CLIENTS];   /* 0: none yet */
#define YES 1
#define NO 2
byte state[CLIENTS];
bit before[CLIENTS];        /* it made an attempt that is over, of which messages may be on their way */

bit exclusive = 1;          /* no two that hold want one name */
bit whole = 1;              /* who holds has each of its names on a quorum */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(exclusive); assert(whole);
#endif
	exclusive = 1; whole = 1
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
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1)
#elif CLIENTS == 3
#define CLIENT(S) S(0) S(1) S(2)
#define LINKS(S) NODES_OF(S, 0) NODES_OF(S, 1) NODES_OF(S, 2)
#else
#error "CLIENTS is 2 or 3"
#endif

#define SAID_YES(n, c)   + (ANSWER(n, c) == YES)
#define HAS(n, c, x)     + (KEY(n, x) == OF(c))

/* ---- the rule, with the switch that turns it off ---- */

#ifdef HALF_GRANTED    /* what is free is granted, and that is a yes */
#define MAY_GRANT(n, c) (FREE(n, FIRST(c)) || FREE(n, SECOND(c)))
#else
#define MAY_GRANT(n, c) (FREE(n, FIRST(c)) && FREE(n, SECOND(c)))
#endif

/* ---- one message executed on one node ---- */

inline take(n, x, whose) {
	if
	:: FREE(n, x) -> KEY(n, x) = whose
	:: else
	fi
}

inline grant(n, c, whose) {
	take(n, FIRST(c), whose); take(n, SECOND(c), whose);
	printf("node %d grants client %d names %d and %d\n", n, c, FIRST(c), SECOND(c))
}

inline release(n, x) { KEY(n, x) = NOBODY }

/* ---- what a client does ---- */

#define COMPARE(d) exclusive = exclusive && state[d] != HELD;

inline hold(c) {
	printf("client %d holds names %d and %d\n", c, FIRST(c), SECOND(c));
	CLIENT(COMPARE)
	whole = (0 NODES_FOR(HAS, c, FIRST(c))) >= QUORUM && (0 NODES_FOR(HAS, c, SECOND(c))) >= QUORUM;
	claim();
	state[c] = HELD
}

#define LET_GO(n, c) \
	if :: KEY(n, FIRST(c)) == OF(c) -> KEY(n, FIRST(c)) = LEFT :: else fi; \
	if :: KEY(n, SECOND(c)) == OF(c) -> KEY(n, SECOND(c)) = LEFT :: else fi; \
	ANSWER(n, c) = 0;

inline finish(c) {
	printf("client %d is done\n", c);
	NODES_OF(LET_GO, c)
	state[c] = IDLE; before[c] = 1
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define OPEN(n, c) (state[c] == ASKING && ANSWER(n, c) == 0)
#define OWN(n, c) (KEY(n, FIRST(c)) == OF(c) && KEY(n, SECOND(c)) == OF(c))

#define GRANT(n, c)       :: STEP { OPEN(n, c) && MAY_GRANT(n, c) -> grant(n, c, OF(c)); ANSWER(n, c) = YES }
#define GRANT_LOST(n, c)  :: STEP { OPEN(n, c) && MAY_GRANT(n, c) -> grant(n, c, OF(c)) }
#define GRANT_AGAIN(n, c) :: STEP { OPEN(n, c) && OWN(n, c) -> ANSWER(n, c) = YES }
#define GRANT_LATE(n, c)  :: STEP { before[c] && MAY_GRANT(n, c) -> grant(n, c, LEFT) }
#define REFUSE(n, c)      :: STEP { OPEN(n, c) && !MAY_GRANT(n, c) && !OWN(n, c) -> ANSWER(n, c) = NO }
#define RELEASE(n, x)     :: STEP { KEY(n, x) == LEFT -> release(n, x) }

#define ASK(c)            :: STEP { state[c] == IDLE -> state[c] = ASKING }
#define HOLD(c)           :: STEP { state[c] == ASKING && (0 NODES_OF(SAID_YES, c)) >= QUORUM -> hold(c) }
#define FINISH(c)         :: STEP { state[c] != IDLE -> finish(c) }

active proctype system() {
end:	do
	LINKS(GRANT)
	LINKS(GRANT_LOST)
	LINKS(GRANT_AGAIN)
	LINKS(GRANT_LATE)
	LINKS(REFUSE)
	NODES_EACH(RELEASE)
	CLIENT(ASK)
	CLIENT(HOLD)
	CLIENT(FINISH)
	od
}
