package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	lua "github.com/yuin/gopher-lua"
)

// interpreter is a Lua state in which scripts run, one after the other, for any server.
type interpreter struct {
	state     *lua.LState
	globals   *lua.LTable
	functions map[*lua.FunctionProto]*lua.LFunction
	words     []string // of the command under way

	// Of the script under way.
	server *Server
}

// idle are the interpreters of this process that run nothing.
var idle struct {
	mu   sync.Mutex
	free []*interpreter
}

func acquireInterpreter() *interpreter {
	idle.mu.Lock()
	defer idle.mu.Unlock()
	last := len(idle.free) - 1
	if last < 0 {
		return newInterpreter()
	}
	i := idle.free[last]
	idle.free = idle.free[:last]
	return i
}

func (i *interpreter) release() {
	i.server = nil
	idle.mu.Lock()
	defer idle.mu.Unlock()
	idle.free = append(idle.free, i)
}

// newInterpreter returns an interpreter with the libraries that Redis has and the scripts use.
func newInterpreter() *interpreter {
	state := lua.NewState(lua.Options{SkipOpenLibs: true, CallStackSize: 64, RegistrySize: 4096})
	i := &interpreter{state: state, globals: state.Get(lua.GlobalsIndex).(*lua.LTable), functions: make(map[*lua.FunctionProto]*lua.LFunction)}
	for name, open := range map[string]lua.LGFunction{"": lua.OpenBase, lua.StringLibName: lua.OpenString, lua.TabLibName: lua.OpenTable, lua.MathLibName: lua.OpenMath} {
		state.Push(state.NewFunction(open))
		state.Push(lua.LString(name))
		state.Call(1, 0)
	}
	for _, name := range []string{"print", "dofile", "loadfile", "module", "require", "newproxy", "_printregs", "collectgarbage"} {
		i.globals.RawSetString(name, lua.LNil)
	}
	i.globals.RawSetString("tonumber", state.NewFunction(toNumber))
	i.globals.RawGetString(lua.StringLibName).(*lua.LTable).RawSetString("format", state.NewFunction(format))
	redis := state.NewTable()
	for name, f := range map[string]lua.LGFunction{
		"call":         i.call,
		"pcall":        i.pcall,
		"error_reply":  errorReply,
		"status_reply": statusReply,
		"sha1hex":      sha1hex,
	} {
		redis.RawSetString(name, state.NewFunction(f))
	}
	i.globals.RawSetString("redis", redis)
	i.guard()
	return i
}

// guard has scripts refused that read a global that is not there, or set one.
func (i *interpreter) guard() {
	// KEYS and ARGV are set for each script, past this.
	rules := i.state.NewTable()
	rules.RawSetString("__index", i.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Script attempted to access nonexistent global variable '%s'", l.ToString(2))
		return 0
	}))
	rules.RawSetString("__newindex", i.state.NewFunction(func(l *lua.LState) int {
		l.RaiseError("Attempt to modify a readonly table")
		return 0
	}))
	i.globals.Metatable = rules
}

// run runs a script.
func (s *Server) run(p *program, keys, argv []string) reply {
	i := acquireInterpreter()
	defer i.release()
	i.server = s
	l := i.state
	i.globals.RawSetString("KEYS", stringsToLua(l, keys))
	i.globals.RawSetString("ARGV", stringsToLua(l, argv))
	function := i.functions[p.compiled]
	if function == nil {
		function = l.NewFunctionFromProto(p.compiled)
		i.functions[p.compiled] = function
	}
	l.Push(function)
	if err := l.PCall(0, 1, nil); err != nil {
		return raised(p, err)
	}
	result := l.Get(-1)
	l.Pop(1)
	return fromLua(result)
}

// raised is the reply to a script that ended with an error.
func raised(p *program, err error) reply {
	failed := err.(*lua.ApiError)
	message, line := failed.Object.String(), "0"
	if table, ok := failed.Object.(*lua.LTable); ok {
		message = table.RawGetString("err").String()
		if l := table.RawGetString("line"); l != lua.LNil {
			line = l.String()
		}
	} else {
		_, rest, _ := strings.Cut(message, ":")
		line, _, _ = strings.Cut(rest, ":")
		message = "ERR " + message
	}
	return refuse(fmt.Sprintf("%s script: %s, on @%s:%s.", message, p.sha, chunkName, line))
}

// call is redis.call, which raises an error.
func (i *interpreter) call(l *lua.LState) int {
	r := i.execute(l)
	if r.kind == failure {
		failed := errorTable(l, r.text)
		where := l.Where(1) // "user_script:12: "
		if parts := strings.Split(where, ":"); len(parts) > 1 {
			failed.RawSetString("source", lua.LString("@"+parts[0]))
			failed.RawSetString("line", lua.LString(parts[1]))
		}
		l.Error(failed, 0)
	}
	l.Push(toLua(l, r))
	return 1
}

// pcall is redis.pcall, which returns an error.
func (i *interpreter) pcall(l *lua.LState) int {
	r := i.execute(l)
	if r.kind == failure {
		l.Push(errorTable(l, r.text))
	} else {
		l.Push(toLua(l, r))
	}
	return 1
}

// execute executes the command on the stack.
func (i *interpreter) execute(l *lua.LState) reply {
	n := l.GetTop()
	if n == 0 {
		return refuse("ERR Please specify at least one argument for this redis lib call")
	}
	words := i.words[:0]
	for k := 1; k <= n; k++ {
		switch v := l.Get(k).(type) {
		case lua.LString:
			words = append(words, string(v))
		case lua.LNumber:
			words = append(words, formatDouble(float64(v)))
		default:
			return refuse("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	i.words = words
	c := lookup(words[0])
	switch {
	case c == nil:
		return refuse("ERR Unknown Redis command called from script")
	case !c.takes(n):
		return refuse("ERR Wrong number of args calling Redis command from script")
	case c.writes && i.server.Replica:
		return refuse(readOnly)
	case i.server.Local != nil:
		if keys := keyWords(words); len(keys) > 0 {
			if refusal := i.server.Local(keys); refusal != "" {
				return refuse(refusal)
			}
		}
	}
	return i.server.runs(c, words)
}

// formatDouble writes a number as C does by %.17g.
func formatDouble(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1e17 {
		return strconv.FormatInt(int64(n), 10)
	}
	return fmt.Sprintf("%.17g", n)
}

// toLua converts a reply as Redis does: null is false.
func toLua(l *lua.LState, r reply) lua.LValue {
	switch r.kind {
	case integer:
		return lua.LNumber(r.int)
	case bulk:
		return lua.LString(r.text)
	case status:
		table := l.CreateTable(0, 1)
		table.RawSetString("ok", lua.LString(r.text))
		return table
	case failure:
		return errorTable(l, r.text)
	case array:
		table := l.CreateTable(len(r.array), 0)
		for i, element := range r.array {
			table.RawSetInt(i+1, toLua(l, element))
		}
		return table
	}
	return lua.LFalse
}

// fromLua converts a script's result as Redis does: a number loses its fraction, false
// and nil are null, and an array ends before its first nil.
func fromLua(v lua.LValue) reply {
	switch v := v.(type) {
	case lua.LString:
		return text(string(v))
	case lua.LNumber:
		return number(int64(v))
	case lua.LBool:
		if v {
			return number(1)
		}
	case *lua.LTable:
		if failed, ok := v.RawGetString("err").(lua.LString); ok {
			return refuse(string(failed))
		}
		if fine, ok := v.RawGetString("ok").(lua.LString); ok {
			return reply{kind: status, text: string(fine)}
		}
		n := v.MaxN()
		elements := make([]reply, 0, n)
		for i := 1; i <= n; i++ {
			element := v.RawGetInt(i)
			if element == lua.LNil {
				break
			}
			elements = append(elements, fromLua(element))
		}
		return list(elements...)
	}
	return reply{}
}

func stringsToLua(l *lua.LState, values []string) *lua.LTable {
	table := l.CreateTable(len(values), 0)
	for i, value := range values {
		table.RawSetInt(i+1, lua.LString(value))
	}
	return table
}
