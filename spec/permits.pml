/*
 * K permits over N nodes: a node gives an attempt one of the slots that are free
 * there, any of them, and votes count for one slot. There is no time in it, as in
 * names.pml: the keys of an attempt that is under way, or holds, stay. What time
 * and tokens do to a slot they do to a lock (lock.pml, token.pml). That one node
 * chooses the slot for all is left out: it only makes it likely that a quorum gives
 * the same one. README.md says what stands for what in the code.
 *
 * A message is executed at any later moment, any number of times, also after its
 * attempt is over, or never.
 */
#ifndef N
#define N 3
#endif
#ifndef CLIENTS
#define CLIENTS 3      /* 2 or 3 */
#endif
#define K 2
#define QUORUM (N / 2 + 1)

#define NOBODY 0
#define OF(c) (1 + (c))
#define LEFT 9         /* of an attempt that is over: its release is on its way */

/* What a client is at. */
#define IDLE 0
#define ASKING 1
#define HELD 2

byte key[N * K];
byte answer[N * CLIENTS];   /* the slot that was given, and 1; 0: none yet */
byte state[CLIENTS];
byte slot[CLIENTS];         /* of a client that holds: its slot, and 1 */
bit before[CLIENTS];        /* it made an attempt that is over, of which messages may be on their way */

bit few = 1;                /* no more than K hold */
bit exclusive = 1;          /* no two of them one slot */
bit once = 1;               /* an attempt has one slot of a node */

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(few); assert(exclusive); assert(once);
#endif
	few = 1; exclusive = 1; once = 1
}

#define KEY(n, s) key[(n) * K + (s)]
#define ANSWER(n, c) answer[(n) * CLIENTS + (c)]

#if N == 3
#define NODES_OF(S, a) S(0, a) S(1, a) S(2, a)
#define NODES_FOR(S, a, b) S(0, a, b) S(1, a, b) S(2, a, b)
#define NODES_EACH(S) S(0, 0) S(0, 1) S(1, 0) S(1, 1) S(2, 0) S(2, 1)
#elif N == 1
#define NODES_OF(S, a) S(0, a)
#define NODES_FOR(S, a, b) S(0, a, b)
#define NODES_EACH(S) S(0, 0) S(0, 1)
#else
#error "N is 1 or 3"
#endif
#if CLIENTS == 2
#define CLIENT(S) S(0) S(1)
#define SLOTS(S) S(0, 0) S(0, 1) S(1, 0) S(1, 1)
#define LINKS(S) NODES_FOR(S, 0, 0) NODES_FOR(S, 0, 1) NODES_FOR(S, 1, 0) NODES_FOR(S, 1, 1)
#elif CLIENTS == 3
#define CLIENT(S) S(0) S(1) S(2)
#define SLOTS(S) S(0, 0) S(0, 1) S(1, 0) S(1, 1) S(2, 0) S(2, 1)
#define LINKS(S) NODES_FOR(S, 0, 0) NODES_FOR(S, 0, 1) NODES_FOR(S, 1, 0) NODES_FOR(S, 1, 1) NODES_FOR(S, 2, 0) NODES_FOR(S, 2, 1)
#else
#error "CLIENTS is 2 or 3"
#endif

#define HAS(n, c) (KEY(n, 0) == OF(c) || KEY(n, 1) == OF(c))

/* ---- the rules, with the switches that turn them off ---- */

#ifdef MIXED           /* a slot here and another there make a quorum */
#define COUNTS(n, c, s)  + (ANSWER(n, c) != 0)
#else
#define COUNTS(n, c, s)  + (ANSWER(n, c) == 1 + (s))
#endif

#ifdef REPEAT_BLIND    /* a repeat does not look for the slot that its attempt has */
#define MAY_GRANT(n, c, s) (KEY(n, s) == NOBODY)
#else
#define MAY_GRANT(n, c, s) (KEY(n, s) == NOBODY && !HAS(n, c))
#endif

/* ---- one message executed on one node ---- */

inline grant(n, c, s) {
	printf("node %d grants client %d slot %d\n", n, c, s);
	KEY(n, s) = OF(c);
	once = !(KEY(n, 0) == OF(c) && KEY(n, 1) == OF(c));
	claim()
}

/* ---- what a client does ---- */

#define IS_HELD(d)     + (state[d] == HELD)
#define COMPARE(d)     exclusive = exclusive && !(state[d] == HELD && slot[d] == slot[who]);
#define GIVE_UP(n, c)  if :: KEY(n, 0) == OF(c) && slot[c] != 1 -> KEY(n, 0) = LEFT :: else fi; \
	if :: KEY(n, 1) == OF(c) && slot[c] != 2 -> KEY(n, 1) = LEFT :: else fi; \
	ANSWER(n, c) = 0;

inline hold(c, s) {
	printf("client %d holds slot %d\n", c, s);
	slot[c] = 1 + s;
	who = c;
#ifndef MIXED /* which slot is nobody's there */
	CLIENT(COMPARE)
#endif
	who = 0;
	state[c] = HELD;
	few = (0 CLIENT(IS_HELD)) <= K;
	claim();
	NODES_OF(GIVE_UP, c)
}

inline finish(c) {
	printf("client %d is done\n", c);
	slot[c] = 0;
	NODES_OF(GIVE_UP, c)
	state[c] = IDLE; before[c] = 1
}

/* ---- what may happen next ---- */

#ifdef COVER /* the same, but spin tells which statements are never reached */
#define STEP atomic
#else
#define STEP d_step
#endif

#define GRANT(n, c, s)       :: STEP { state[c] == ASKING && ANSWER(n, c) == 0 && MAY_GRANT(n, c, s) -> grant(n, c, s); ANSWER(n, c) = 1 + s }
#define GRANT_LOST(n, c, s)  :: STEP { state[c] == ASKING && MAY_GRANT(n, c, s) -> grant(n, c, s) }
#define GRANT_AGAIN(n, c, s) :: STEP { state[c] == ASKING && ANSWER(n, c) == 0 && KEY(n, s) == OF(c) -> ANSWER(n, c) = 1 + s }
#define GRANT_LATE(n, c, s)  :: STEP { before[c] && KEY(n, s) == NOBODY -> KEY(n, s) = LEFT }
#define RELEASE(n, s)        :: STEP { KEY(n, s) == LEFT -> KEY(n, s) = NOBODY }

#define ASK(c)               :: STEP { state[c] == IDLE -> state[c] = ASKING }
#define HOLD(c, s)           :: STEP { state[c] == ASKING && (0 NODES_FOR(COUNTS, c, s)) >= QUORUM -> hold(c, s) }
#define FINISH(c)            :: STEP { state[c] != IDLE -> finish(c) }

byte who;                   /* whose slot is compared; 0 between steps */

active proctype system() {
end:	do
	LINKS(GRANT)
	LINKS(GRANT_LOST)
	LINKS(GRANT_AGAIN)
	LINKS(GRANT_LATE)
	NODES_EACH(RELEASE)
	CLIENT(ASK)
	SLOTS(HOLD)
	CLIENT(FINISH)
	od
}
