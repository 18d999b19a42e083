/*
 * The wait queue of the read-write lock on its arbiter: who is woken up, and
 * who may come in. README.md says what stands for what in the code.
 *
 * There is one queue. Writers stand in it as they come; readers who are to hold
 * together have one place: before the first writer, or right behind it. A
 * waiter may give up at any moment, and who is woken up may be slow. There are no
 * failures in it: a key that expires, a node that is out, a message that is
 * late may break an order, and are left out.
 */
#ifndef WRITERS
#define WRITERS 2      /* 2 or 3 */
#endif
#ifndef READERS
#define READERS 2      /* 2 or 3 */
#endif

/* Who has the key, or was woken up to take it. */
#define NOBODY 0
#define ALL_READERS 1
#define WRITER_OF(w) (2 + (w))
byte holder, woken;

/* A reader's place in the queue. */
#define FIRST 1        /* before the first writer */
#define SECOND 2       /* right behind it */
bit reading[READERS];
byte place[READERS];   /* 0: it does not wait */
byte turn[WRITERS];    /* 0: it does not wait; 1: no writer is before it */

/* What is known of those who wait, for the properties alone. */
byte let_by[READERS];            /* the writers that came in while this reader waits */
byte ahead[WRITERS];             /* the writers that were ahead of this one when it came */
bit later[READERS * WRITERS];    /* the reader waits, and came after the writer did */
byte passed[READERS * WRITERS];  /* how often the reader came after the writer, and came in before it */

bit asked;             /* the step has the arbiter wake up who is next; back at 0 after it */

bit one_writer = 1;    /* a reader waits for one writer at most */
bit phase_fair = 1;    /* a reader passes a writer at most once for each writer ahead of that one */
bit not_idle = 1;      /* while somebody waits, somebody has the key, or waits and was woken up */

/* What is broken, which is to be seen: no readers hold together. Asserted by PROPERTY=alone. */
bit alone = 1;

inline claim() {
#ifdef PROPERTY
	assert(PROPERTY);
#else
	assert(one_writer); assert(phase_fair); assert(not_idle);
#endif
	one_writer = 1; phase_fair = 1; not_idle = 1; alone = 1
}

#define LATER(r, w) later[(r) * WRITERS + (w)]
#define PASSED(r, w) passed[(r) * WRITERS + (w)]

/* Options and sums, spelled out: one process without variables of its own keeps a state small. */
#if WRITERS == 2
#define WRITER(S) S(0) S(1)
#define WRITERS_FOR(S, x) S(0, x) S(1, x)
#elif WRITERS == 3
#define WRITER(S) S(0) S(1) S(2)
#define WRITERS_FOR(S, x) S(0, x) S(1, x) S(2, x)
#else
#error "WRITERS is 2 or 3"
#endif
#if READERS == 2
#define READER(S) S(0) S(1)
#define READERS_FOR(S, x) S(0, x) S(1, x)
#elif READERS == 3
#define READER(S) S(0) S(1) S(2)
#define READERS_FOR(S, x) S(0, x) S(1, x) S(2, x)
#else
#error "READERS is 2 or 3"
#endif

#define WAITS(w)       + (turn[w] > 0)
#define WAITS_FIRST(r) + (place[r] == FIRST)
#define WAITS_AT_ALL(r) + (place[r] > 0)
#define IS_IN(r)       + reading[r]
#define WRITERS_WAIT   (0 WRITER(WAITS))
#define READERS_FIRST  ((0 READER(WAITS_FIRST)) > 0)
#define READERS_IN     (0 READER(IS_IN))

/* ---- the rules, each with the switch that turns it off ---- */

#ifdef BARGE              /* who comes to read comes in with those who do */
#define MAY_JOIN (holder <= ALL_READERS && woken <= ALL_READERS)
#else
#define MAY_JOIN (holder <= ALL_READERS && woken <= ALL_READERS && WRITERS_WAIT == 0)
#endif

#if defined(BATCH_OPEN)   /* and waits with those who were woken up */
#define PLACE (holder > ALL_READERS || woken == ALL_READERS || WRITERS_WAIT == 0 -> FIRST : SECOND)
#elif defined(WRITER_PREFERENCE) /* all writers come first */
#define PLACE (WRITERS_WAIT == 0 -> FIRST : SECOND)
#else
#define PLACE (holder > ALL_READERS || WRITERS_WAIT == 0 -> FIRST : SECOND)
#endif

#ifdef WRITER_PREFERENCE
#define NEXT_ARE_READERS (WRITERS_WAIT == 0)
#else
#define NEXT_ARE_READERS true
#endif

/* ---- what the arbiter does ---- */

#define WAKE_WRITER(w) if :: turn[w] == 1 -> woken = WRITER_OF(w); printf("writer %d is woken up\n", w) :: else fi;

/* Who was woken up, and still waits, stays so. */
inline wake() {
	if
	:: woken == ALL_READERS && READERS_FIRST -> skip
	:: woken > ALL_READERS -> skip
	:: else ->
		woken = NOBODY;
		if
		:: READERS_FIRST -> woken = ALL_READERS; printf("the readers are woken up\n")
		:: else -> WRITER(WAKE_WRITER)
		fi
	fi
}

#define FREE_FOR_FIRST (holder == NOBODY || (holder == ALL_READERS && READERS_FIRST))

inline settle() {
	if
	:: asked && FREE_FOR_FIRST -> wake()
	:: else
	fi;
	asked = 0;
	not_idle = (holder != NOBODY || woken > ALL_READERS || (woken == ALL_READERS && READERS_FIRST) || (WRITERS_WAIT == 0 && (0 READER(WAITS_AT_ALL)) == 0));
	claim()
}

#define PASS(w, r) \
	if \
	:: turn[w] > 0 && (LATER(r, w) || place[r] == 0) -> PASSED(r, w)++; phase_fair = phase_fair && PASSED(r, w) <= ahead[w] \
	:: else \
	fi; \
	LATER(r, w) = 0;

#define FORGET_LATER(w, r) LATER(r, w) = 0;

inline pass(r) { WRITERS_FOR(PASS, r) skip }

inline come_in(r) {
	printf("reader %d comes in\n", r);
	reading[r] = 1; holder = ALL_READERS; place[r] = 0; let_by[r] = 0;
	if
	:: woken == ALL_READERS && READERS_FIRST -> skip
	:: else -> woken = NOBODY
	fi;
	alone = (READERS_IN <= 1)
}

#define CAME_BEFORE(w, r) LATER(r, w) = (turn[w] > 0);

inline queue_reader(r) {
	place[r] = PLACE; WRITERS_FOR(CAME_BEFORE, r)
	printf("reader %d waits at place %d\n", r, place[r]);
	asked = 1
}

inline leave(r) {
	printf("reader %d leaves\n", r);
	reading[r] = 0;
	if
	:: READERS_IN == 0 -> holder = NOBODY
	:: else
	fi;
	asked = 1
}

inline stop_waiting(r) {
	printf("reader %d gives up\n", r);
	place[r] = 0; let_by[r] = 0; WRITERS_FOR(FORGET_LATER, r)
	asked = 1
}

#define MOVE_UP(x, w)      if :: turn[x] > turn[w] -> turn[x]-- :: else fi;
#define MOVE_READER_UP(r)  if :: place[r] == SECOND && NEXT_ARE_READERS -> place[r] = FIRST :: else fi;
#define FORGET_PASSED(r, w) PASSED(r, w) = 0; LATER(r, w) = 0;

inline forget(w) {
	ahead[w] = 0; READERS_FOR(FORGET_PASSED, w)
	turn[w] = 0
}

/* Who is behind the first writer is before the next. */
inline leave_first(w) {
	WRITERS_FOR(MOVE_UP, w)
	forget(w); READER(MOVE_READER_UP)
	if
	:: woken == WRITER_OF(w) -> woken = NOBODY
	:: else
	fi
}

inline leave_later(w) { WRITERS_FOR(MOVE_UP, w) forget(w) }

#define LET_BY(r) if :: place[r] > 0 -> let_by[r]++; one_writer = one_writer && let_by[r] <= 1 :: else fi;

inline write(w) {
	printf("writer %d comes in\n", w);
	holder = WRITER_OF(w)
}

inline write_woken(w) {
	WRITERS_FOR(MOVE_UP, w)
	forget(w); READER(LET_BY) READER(MOVE_READER_UP)
	woken = NOBODY; write(w)
}

inline queue_writer(w) {
	ahead[w] = WRITERS_WAIT + (holder > ALL_READERS); turn[w] = WRITERS_WAIT + 1;
	printf("writer %d waits at place %d\n", w, turn[w]);
	asked = 1
}

/* ---- what may happen next ---- */

#define IDLE_READER(r)  (!reading[r] && place[r] == 0)
#define IDLE_WRITER(w)  (turn[w] == 0 && holder != WRITER_OF(w))

#ifdef BARGE
#define JOIN(r)         :: IDLE_READER(r) && MAY_JOIN -> pass(r); come_in(r)
#else
#define JOIN(r)         :: IDLE_READER(r) && MAY_JOIN -> come_in(r)
#endif
#define QUEUE_READER(r) :: IDLE_READER(r) -> queue_reader(r)
#define COME_IN(r)      :: place[r] == FIRST && holder <= ALL_READERS && woken <= ALL_READERS -> pass(r); come_in(r)
#define LEAVE(r)        :: reading[r] -> leave(r)
#define STOP_READER(r)  :: place[r] > 0 -> stop_waiting(r)

#define WRITE(w)        :: IDLE_WRITER(w) && holder == NOBODY && woken == NOBODY -> write(w)
#define QUEUE_WRITER(w) :: IDLE_WRITER(w) -> queue_writer(w)
#define WRITE_WOKEN(w)  :: woken == WRITER_OF(w) && holder == NOBODY -> write_woken(w)
#define END_WRITE(w)    :: holder == WRITER_OF(w) -> holder = NOBODY; asked = 1
#define STOP_FIRST(w)   :: turn[w] == 1 -> leave_first(w); asked = 1
#define STOP_LATER(w)   :: turn[w] > 1 -> leave_later(w)

/* The time of those who were woken up is over; who has not come keeps its place. */
#define TIME_OVER       :: woken == ALL_READERS && holder == ALL_READERS -> woken = NOBODY

#define STEPS \
	READER(JOIN) \
	READER(QUEUE_READER) \
	READER(COME_IN) \
	READER(LEAVE) \
	READER(STOP_READER) \
	WRITER(WRITE) \
	WRITER(QUEUE_WRITER) \
	WRITER(WRITE_WOKEN) \
	WRITER(END_WRITE) \
	WRITER(STOP_FIRST) \
	WRITER(STOP_LATER) \
	TIME_OVER

active proctype system() {
end:	do
	:: atomic { if STEPS fi; settle() }
	od
}
