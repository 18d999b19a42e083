/*
 * Whether a node may vote: the quarantine, the agreement, and the server that
 * an admission is of. One node, which is one server that restarts, is demoted
 * and promoted in one process, loses its keys or gets old ones back; clients of
 * two agreements, who look, admit and vote at any later moment; and an operator
 * who changes the deployment. README.md says what stands for what in the code.
 *
 * Time is spans that count down, as in lock.pml, without errors of the clocks.
 * A vote is a lock here: with one node, whom it votes for holds. What the other
 * nodes' records say is one variable: they forget nothing here.
 *
 * What was written long ago can come back: saved is the keys as they were at
 * some moment, on a replica that lags or in a file. Their spans go on there.
 */
#define SHORT 0
#define LONG 1
#define TTL(a) (1 + (a))                  /* what clients of an agreement ask for at most */
#ifdef QUARANTINE_SHORT
#define SPAN(a) (TTL(a) - 1)
#else
#define SPAN(a) TTL(a)                    /* the shortest that is enough without errors of clocks */
#endif
#ifndef EVENTS
#define EVENTS 1                          /* restarts, or pairs of failbacks, at most */
#endif
#ifndef CLIENTS
#define CLIENTS 2
#endif
#define NOBODY 0
#define NONE 3                            /* no agreement */

typedef keys {
	byte owner, life;                 /* the lock, and for how long it lasts */
	byte adm, adm_proc, adm_repl;       /* the admission: an agreement or NONE, and of which server */
	byte dep, dep_proc, dep_repl;       /* the deployment's record */
	bit note; byte note_proc, note_repl, note_left;
}

keys data, saved;
byte proc = 1, repl = 1;                    /* which process, and since which promotion */
byte up;                                  /* for how long, LONG's span at most */
bit promoted, flushed, script;            /* of this proc: it was a replica, lost its keys, knows the script */
byte word = NONE;                         /* what the other nodes have recorded */
byte changing;                            /* for how long a change of the deployment keeps the node out */

byte agreement[CLIENTS], validity[CLIENTS];
byte exp_proc[CLIENTS], exp_repl[CLIENTS];  /* the server that a client has examined, 0 for none */
byte plan[CLIENTS];                       /* what it is about to do, after it looked */
byte look_proc[CLIENTS], look_repl[CLIENTS];/* at which server */
bit stale[CLIENTS];                       /* the record, or all keys, have changed since */
byte i;
bit exclusive = 1;                        /* no two hold at once */

#define NOTHING 0
#define ADMIT 1
#define BEGIN 2

#if CLIENTS == 2
#define CLIENT(S) S(0) S(1)
#else
#define CLIENT(S) S(0) S(1) S(2)
#endif
#define HOLDS(c) + (validity[c] > 0)

inline forget(k) {
	k.owner = NOBODY; k.life = 0; k.adm = NONE; k.adm_proc = 0; k.adm_repl = 0; k.dep = NONE; k.dep_proc = 0; k.dep_repl = 0;
	k.note = 0; k.note_proc = 0; k.note_repl = 0; k.note_left = 0
}

inline copy(to, from) {
	to.owner = from.owner; to.life = from.life; to.adm = from.adm; to.adm_proc = from.adm_proc; to.adm_repl = from.adm_repl;
	to.dep = from.dep; to.dep_proc = from.dep_proc; to.dep_repl = from.dep_repl;
	to.note = from.note; to.note_proc = from.note_proc; to.note_repl = from.note_repl; to.note_left = from.note_left
}

inline changed() { for (i : 0 .. CLIENTS-1) { stale[i] = 1 } i = 0 }

/* ---- the rules, each with the switch that turns it off ---- */

#define HAS_BEEN(a_proc, a_repl) (a_proc == proc && a_repl == repl)
#ifdef KNOWN_BY_RUN
#define KNOWN (data.dep != NONE && data.dep_proc == proc)
#else
#define KNOWN (data.dep != NONE && HAS_BEEN(data.dep_proc, data.dep_repl))
#endif

#ifdef ANY_AGREEMENT
#define DISAGREES(c) false
#define OTHERS_DISAGREE(c) false
#else
#define DISAGREES(c) (data.dep != NONE && data.dep != agreement[c] && (KNOWN || word != agreement[c]))
#ifdef OWN_WORD
#define OTHERS_DISAGREE(c) false
#else
#define OTHERS_DISAGREE(c) (!KNOWN && word != NONE && word != agreement[c])
#endif
#endif

/* A record of another agreement that the other nodes' overrule is none. */
#define RECORD(c) (data.dep != NONE && data.dep == agreement[c])

#ifdef DATA_LOSS_UNSEEN
#define LOST_ITS_KEYS(c) false
#else
#define LOST_ITS_KEYS(c) (!RECORD(c) && (script || flushed))
#endif
#ifdef PROMOTION_UNSEEN
#define WAS_REPLICA(c) false
#else
#define WAS_REPLICA(c) (promoted || (RECORD(c) && data.dep_proc == proc))
#endif
#ifdef NOTE_UNSEEN
#define NOTED_HERE false
#define NOTED_BEFORE false
#else
#define NOTED_HERE (data.note && data.note_proc == proc)
#define NOTED_BEFORE (data.note && data.note_proc != proc && data.note_left > 0)
#endif
#ifdef NO_QUARANTINE
#define LONG_ENOUGH(c) true
#else
#define LONG_ENOUGH(c) (up >= SPAN(agreement[c]))
#endif

#ifdef VOTE_UNCOMPARED
#define ADMITTED(c) (data.adm != NONE)
#elif defined(REPLICATION_ID_UNCOMPARED)
#define ADMITTED(c) (data.adm == agreement[c] && data.adm_proc == exp_proc[c] && data.adm_repl == exp_repl[c])
#elif defined(SERVER_UNCOMPARED) /* the key alone, which comes back with a master's data */
#define ADMITTED(c) (data.adm == agreement[c] && exp_proc[c] != 0)
#elif defined(AGREEMENT_UNCOMPARED)
#define ADMITTED(c) (data.adm != NONE && HAS_BEEN(data.adm_proc, data.adm_repl))
#else
#define ADMITTED(c) (data.adm == agreement[c] && data.adm_proc == exp_proc[c] && data.adm_repl == exp_repl[c] && data.adm_repl == repl)
#endif
#ifdef EVAL_ON_NOSCRIPT
#define SCRIPT true
#else
#define SCRIPT script
#endif

#ifdef QUARANTINE_SHORTENED
#define LONGER(c) false
#else
#define LONGER(c) ((NOTED_HERE || NOTED_BEFORE) && data.note_left > SPAN(agreement[c]))
#endif

#ifdef ADMIT_UNCOMPARED
#define MAY_ACT(c) (HAS_BEEN(look_proc[c], look_repl[c]))
#else
#define MAY_ACT(c) (HAS_BEEN(look_proc[c], look_repl[c]) && !stale[c])
#endif

/* ---- a client ---- */

inline look(c) {
	plan[c] = NOTHING;
	if
	:: DISAGREES(c) || OTHERS_DISAGREE(c) -> printf("client %d is refused: its agreement is another\n", c)
	:: else ->
		look_proc[c] = proc; look_repl[c] = repl; stale[c] = 0;
		if
		:: !data.note && KNOWN && RECORD(c) -> plan[c] = ADMIT
		:: else ->
			if
			:: NOTED_HERE && !HAS_BEEN(data.note_proc, data.note_repl) -> plan[c] = BEGIN
			:: NOTED_HERE && HAS_BEEN(data.note_proc, data.note_repl) && data.note_left == 0 -> plan[c] = ADMIT
			:: NOTED_HERE && HAS_BEEN(data.note_proc, data.note_repl) && data.note_left > 0 -> skip
			:: !NOTED_HERE && NOTED_BEFORE && !(KNOWN && RECORD(c)) && (LOST_ITS_KEYS(c) || WAS_REPLICA(c)) -> plan[c] = BEGIN
			:: !NOTED_HERE && NOTED_BEFORE && !(!(KNOWN && RECORD(c)) && (LOST_ITS_KEYS(c) || WAS_REPLICA(c))) -> skip
			:: !NOTED_HERE && !NOTED_BEFORE ->
				if
				:: KNOWN && RECORD(c) -> plan[c] = ADMIT
				:: !(KNOWN && RECORD(c)) && (LOST_ITS_KEYS(c) || WAS_REPLICA(c)) -> plan[c] = BEGIN
				:: !(KNOWN && RECORD(c)) && !LOST_ITS_KEYS(c) && !WAS_REPLICA(c) && LONG_ENOUGH(c) -> plan[c] = ADMIT
				:: else -> skip
				fi
			fi
		fi;
		printf("client %d has looked: %d\n", c, plan[c])
	fi
}

inline admit(c) {
	data.adm = agreement[c]; data.adm_proc = proc; data.adm_repl = repl; data.dep = agreement[c]; data.dep_proc = proc; data.dep_repl = repl;
	data.note = 0; data.note_proc = 0; data.note_repl = 0; data.note_left = 0;
	script = 1; exp_proc[c] = proc; exp_repl[c] = repl; plan[c] = NOTHING;
	if
	:: word == NONE -> word = agreement[c]
	:: else
	fi;
	changed(); printf("client %d admits the node\n", c)
}

inline begin(c) {
	data.adm = NONE; data.adm_proc = 0; data.adm_repl = 0;
	data.note_left = (LONGER(c) -> data.note_left : SPAN(agreement[c]));
	data.note = 1; data.note_proc = proc; data.note_repl = repl;
	plan[c] = NOTHING; changed(); printf("client %d begins a quarantine\n", c)
}

inline vote(c) {
	data.owner = 1 + c; data.life = TTL(agreement[c]); validity[c] = TTL(agreement[c]);
	printf("client %d holds\n", c);
	exclusive = ((0 CLIENT(HOLDS)) <= 1); assert(exclusive); exclusive = 1
}

inline release(c) {
	if
	:: data.owner == 1 + c -> data.owner = NOBODY; data.life = 0
	:: else
	fi;
	validity[c] = 0; printf("client %d is done\n", c)
}

/* ---- what befalls the server ---- */

inline another_server() { repl++; changed() }

inline restart() {
	proc++; up = 0; script = 0; flushed = 0; promoted = 0; another_server(); printf("the server restarts\n")
}

/* A replica of its own replica, and master again: the connections and the scripts live on. */
inline failback() { copy(data, saved); promoted = 1; another_server(); printf("the server was a replica, and is the master again\n") }

inline flush() { forget(data); flushed = 1; changed(); printf("all keys are deleted\n") }

/* The operator's change: it waits for the longer of the two. */
inline set(a) {
	data.adm = NONE; data.adm_proc = 0; data.adm_repl = 0;
	data.note = 1; data.note_proc = proc; data.note_repl = repl;
#ifdef CHANGE_WAITS_FOR_THE_NEW
	data.note_left = SPAN(a);
#else
	data.note_left = (((data.dep != NONE && data.dep > a) || (word != NONE && word > a)) -> SPAN(LONG) : SPAN(a));
#endif
	changing = data.note_left; data.dep = a; data.dep_proc = proc; data.dep_repl = repl; word = a;
	changed(); printf("the operator sets the agreement %d\n", a)
}

/* ---- time ---- */

inline age(k) {
	if
	:: k.life > 1 -> k.life--
	:: k.life == 1 -> k.life = 0; k.owner = NOBODY
	:: else
	fi;
	if
	:: k.note_left > 0 -> k.note_left--
	:: else
	fi
}

inline tick() {
	age(data); age(saved);
	if
	:: up < SPAN(LONG) -> up++
	:: else
	fi;
	for (i : 0 .. CLIENTS-1) {
		if
		:: validity[i] > 0 -> validity[i]--
		:: else
		fi
	}
	if
	:: changing > 0 -> changing--
	:: else
	fi;
	i = 0; printf("--- a tick\n")
}

#ifdef COVER
#define STEP atomic
#else
#define STEP d_step
#endif

#define LOOK(c)    :: STEP { plan[c] == NOTHING -> look(c) }
#define ACT(c)     :: STEP { plan[c] == ADMIT && MAY_ACT(c) -> admit(c) } \
                   :: STEP { plan[c] == BEGIN && MAY_ACT(c) -> begin(c) } \
                   :: STEP { plan[c] != NOTHING -> plan[c] = NOTHING }
#define VOTE(c)    :: STEP { validity[c] == 0 && data.owner == NOBODY && SCRIPT && ADMITTED(c) -> vote(c) }
#define RELEASE(c) :: STEP { validity[c] > 0 -> release(c) }
/* Out of what is promised: a node that forgets a change of the deployment while it waits for it. */
#define KEEPS_THE_CHANGE (changing == 0 || saved.note_left >= changing)
#define MIGHT (proc + repl < 2 + 2 * EVENTS)

init {
	d_step { forget(data); forget(saved); agreement[0] = LONG; agreement[1] = SHORT;
#ifdef ALIKE
	agreement[1] = LONG;
#endif
#if CLIENTS == 3
	agreement[2] = LONG;
#endif
	}
end:	do
	CLIENT(LOOK)
	CLIENT(ACT)
	CLIENT(VOTE)
	CLIENT(RELEASE)
	:: STEP { true -> tick() }
	:: STEP { copy(saved, data) }
	:: STEP { MIGHT && changing == 0 -> forget(data); restart() }
	:: STEP { MIGHT && KEEPS_THE_CHANGE -> copy(data, saved); restart() }
	:: STEP { MIGHT && KEEPS_THE_CHANGE -> failback() }
	:: STEP { MIGHT && changing == 0 && !flushed -> flush() }
	:: STEP { word != NONE && word != LONG -> set(LONG) }
	:: STEP { word != NONE && word != SHORT -> set(SHORT) }
	od
}
