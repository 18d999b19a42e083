package server

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// program is a script that a server knows.
type program struct {
	sha      string
	compiled *lua.FunctionProto
}

// compilation is what a text compiles to.
type compilation struct {
	proto *lua.FunctionProto
	err   error
}

var compilations sync.Map // of compilation by text: a text is compiled once in a process

func compile(text string) (*lua.FunctionProto, error) {
	if c, ok := compilations.Load(text); ok {
		return c.(compilation).proto, c.(compilation).err
	}
	chunk, err := parse.Parse(strings.NewReader(text), chunkName)
	var proto *lua.FunctionProto
	if err == nil {
		proto, err = lua.Compile(chunk, chunkName)
	}
	if err == nil {
		// No script reads arg, a table of what it was called with, which would be made each time.
		proto.IsVarArg &^= lua.VarArgNeedsArg
	}
	compilations.Store(text, compilation{proto, err})
	return proto, err
}

// chunkName is what Redis calls a script in its messages.
const chunkName = "user_script"

// load makes the script known.
func (s *Server) load(text string) (*program, error) {
	sha := SHA(text)
	if p := s.scripts[sha]; p != nil {
		return p, nil
	}
	if s.Edit != nil {
		text = s.Edit(text)
	}
	proto, err := compile(text)
	if err != nil {
		return nil, err
	}
	p := &program{sha, proto}
	s.scripts[sha] = p
	return p, nil
}

// eval is EVAL text keys [key ...] [arg ...], without its first word.
func (s *Server) eval(args []string) reply {
	if len(args) < 2 {
		return refuse("ERR wrong number of arguments for 'eval' command")
	}
	keys, argv, refused := parameters(args[1:])
	if refused.kind == failure {
		return refused
	}
	p, err := s.load(args[0])
	if err != nil {
		return refuse(fmt.Sprintf("ERR Error compiling script (new function): %v", err))
	}
	return s.run(p, keys, argv)
}

// evalSHA is EVALSHA sha keys [key ...] [arg ...], without its first word.
func (s *Server) evalSHA(args []string) reply {
	if len(args) < 2 {
		return refuse("ERR wrong number of arguments for 'evalsha' command")
	}
	keys, argv, refused := parameters(args[1:])
	if refused.kind == failure {
		return refused
	}
	p := s.scripts[args[0]]
	if p == nil {
		p = s.scripts[strings.ToLower(args[0])]
	}
	if p == nil {
		return refuse(noScript)
	}
	return s.run(p, keys, argv)
}

// parameters parts a script's keys from its arguments.
func parameters(args []string) (keys, argv []string, refused reply) {
	n, err := strconv.Atoi(args[0])
	switch {
	case err != nil:
		return nil, nil, refuse(noInteger)
	case n > len(args)-1:
		return nil, nil, refuse("ERR Number of keys can't be greater than number of args")
	case n < 0:
		return nil, nil, refuse("ERR Number of keys can't be negative")
	}
	return args[1 : 1+n], args[1+n:], reply{}
}

// script is SCRIPT LOAD, EXISTS or FLUSH.
func (s *Server) script(args []string) reply {
	if len(args) == 0 {
		return refuse("ERR wrong number of arguments for 'script' command")
	}
	switch what := strings.ToUpper(args[0]); {
	case what == "FLUSH":
		s.FlushScripts()
		return ok
	case what == "LOAD" && len(args) == 2:
		p, err := s.load(args[1])
		if err != nil {
			return refuse(fmt.Sprintf("ERR Error compiling script (new function): %v", err))
		}
		return text(p.sha)
	case what == "EXISTS" && len(args) > 1:
		var known []reply
		for _, sha := range args[1:] {
			known = append(known, truth(s.scripts[strings.ToLower(sha)] != nil))
		}
		return list(known...)
	}
	return refuse("ERR unknown subcommand or wrong number of arguments for '" + args[0] + "'. Try SCRIPT HELP.")
}
