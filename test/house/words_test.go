package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// root is the folder of the project.
const root = "../.."

// retired are the words that the code does not use any more, and what it says instead
// (docs/glossary.md).
var retired = map[string]string{
	"ballot": "vote", "seat": "nodeState", "lane": "step", "bequest": "transfer", "handon": "transfer", "handover": "transfer",
	"leftover": "cleanUp", "leftovers": "cleanUps", "greeting": "handshake", "greet": "shakeHands", "reign": "replication id",
	"pulse": "barrier", "gatherer": "batcher", "bundle": "batch", "express": "direct", "owing": "unanswered",
	"adrift": "abandoned", "hurry": "abandon", "crowd": "contention, or batch", "crowded": "contended", "keeper": "arbiter",
	"beat": "heartbeat", "fenced": "quarantine", "standing": "status, or position", "bequests": "transfers", "claim": "request",
	"ear": "wakeUps", "seats": "nodes", "lanes": "steps", "keepers": "nodes", "beats": "heartbeats", "crowds": "waiters",
	"twin": "control", "tortured": "worker", "crew": "workers", "hire": "start", "town": "world",
	"cast": "send",
}

// kept has the identifiers that are of another thing than the retired word: the keeper of
// `redlatch lock --keep` is a process.
var kept = []string{"Keeper", "keeper", "leaveKeeper", "startKeeper"}

// sources are the Go files of the folders, with their tests.
func sources(t *testing.T, folders ...string) []string {
	t.Helper()
	var files []string
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && folder == "." && path != filepath.Join(root, "."):
				return filepath.SkipDir
			case !d.IsDir() && strings.HasSuffix(path, ".go"):
				files = append(files, path)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// library is where the words are the field's own.
var library = []string{
	".", "oneshot", "doctor", "fence", "legacy", "goredis", "zookeeper", "etcd", "internal/ensemble", "otel", "redlatchtest", "internal/memory", "internal/vote", "internal/quorum", "internal/waitqueue", "internal/listing", "internal/observe", "internal/node", "internal/script",
	"internal/admission", "internal/redisconn", "internal/driver", "internal/hook", "internal/clock", "internal/locktest", "internal/storm", "internal/torture",
	"internal/redistest", "internal/ensembletest", "internal/sim", "cmd/redlatch", "cmd/redlatch-torture", "bench", "interop", "examples", "test/locking", "test/waiting", "test/faults", "test/guides", "test/restart", "test/topology",
}

// words splits an identifier where its case changes.
func words(identifier string) []string {
	var all []string
	start := 0
	letters := []rune(identifier)
	for i := 1; i <= len(letters); i++ {
		if i == len(letters) || unicode.IsUpper(letters[i]) && !unicode.IsUpper(letters[i-1]) || letters[i] == '_' {
			all = append(all, strings.ToLower(strings.Trim(string(letters[start:i]), "_")))
			start = i
		}
	}
	return all
}

// No identifier has a retired word.
func TestWordsOfIdentifiers(t *testing.T) {
	for _, file := range sources(t, library...) {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			identifier, ok := n.(*ast.Ident)
			if !ok || slices.Contains(kept, identifier.Name) {
				return true
			}
			for _, word := range words(strings.ReplaceAll(identifier.Name, "ZooKeeper", "Zookeeper")) { // a name
				if instead, ok := retired[word]; ok {
					t.Errorf("%s: %s has the retired word %q: use %s", set.Position(n.Pos()), identifier.Name, word, instead)
				}
			}
			return true
		})
	}
}

// phrases are retired in comments and messages, and in Lua.
var phrases = regexp.MustCompile(`(?i)\b(restart fence|ballots?|seats?|lanes?|bequests?|leftovers?|gatherer|bundles?|the express|crowds?|the twin|stands? in (the )?line|(joins?|leaves?|keeps) the line|in line for)\b`)

func TestWordsOfComments(t *testing.T) {
	for _, file := range sources(t, library...) {
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range parsed.Comments {
			if found := phrases.FindString(strings.ReplaceAll(group.Text(), "\n", " ")); found != "" {
				t.Errorf("%s: %q is retired", set.Position(group.Pos()), found)
			}
		}
	}
	scripts, err := filepath.Glob(filepath.Join(root, "internal/script/*.lua"))
	if err != nil || len(scripts) == 0 {
		t.Fatal("no scripts: ", err)
	}
	for _, file := range scripts {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if found := phrases.FindString(string(text)); found != "" {
			t.Errorf("%s: %q is retired", file, found)
		}
	}
}
