// Package spec holds the checked model of the lock: what the quorum engine,
// the nodes and their scripts do, small enough that spin can look at every
// state it may get into. lock.pml has time, crashes and extensions in it, and
// is about mutual exclusion; token.pml has none of these, and is about the
// order of fencing tokens; admission.pml is about whether a node may vote that was
// restarted, promoted or emptied; names.pml and names_token.pml are about
// several names at once, names_singly.pml about names that are taken one by one;
// permits.pml is about one of several slots;
// shared.pml, shared_token.pml and shared_queue.pml are about
// readers beside writers. README.md maps them to the code.
//
// There is nothing here to import. The package's tests run spin over the
// models as they are, and over every mutation: a model with one rule of the
// design turned off, in which spin must find the harm that rule prevents. A
// rule that changes in the code changes here first.
//
// The tests need spin and a C compiler (apt-get install spin gcc) and are left
// out by -short. They run larger sizes when the environment variable
// REDLATCH_SPEC is "large", and print the shortest way to each violation when
// it is "story".
package spec
