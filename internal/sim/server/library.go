package server

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// What Redis adds to Lua, and what the interpreter does otherwise than Lua 5.1.

// errorTable is an error as scripts see it.
func errorTable(l *lua.LState, text string) *lua.LTable {
	table := l.CreateTable(0, 1)
	table.RawSetString("err", lua.LString(text))
	return table
}

// errorReply is redis.error_reply: a text of one word is no code.
func errorReply(l *lua.LState) int {
	message := strings.Trim(strings.TrimPrefix(l.CheckString(1), "-"), "\r\n")
	if !strings.Contains(message, " ") {
		message = "ERR " + message
	}
	l.Push(errorTable(l, message))
	return 1
}

// statusReply is redis.status_reply.
func statusReply(l *lua.LState) int {
	table := l.CreateTable(0, 1)
	table.RawSetString("ok", lua.LString(l.CheckString(1)))
	l.Push(table)
	return 1
}

// sha1hex is redis.sha1hex.
func sha1hex(l *lua.LState) int {
	l.Push(lua.LString(SHA(l.CheckString(1))))
	return 1
}

// toNumber is tonumber, which reads a text as strtod does.
func toNumber(l *lua.LState) int {
	if l.GetTop() > 1 && l.CheckInt(2) != 10 {
		n, err := strconv.ParseInt(strings.TrimSpace(l.CheckString(1)), l.CheckInt(2), 64)
		if err != nil {
			l.Push(lua.LNil)
		} else {
			l.Push(lua.LNumber(n))
		}
		return 1
	}
	switch v := l.CheckAny(1).(type) {
	case lua.LNumber:
		l.Push(v)
	case lua.LString:
		if n, ok := parseLuaNumber(string(v)); ok {
			l.Push(lua.LNumber(n))
		} else {
			l.Push(lua.LNil)
		}
	default:
		l.Push(lua.LNil)
	}
	return 1
}

func parseLuaNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if strings.ContainsRune(s, '_') {
		return 0, false
	}
	if digits, ok := strings.CutPrefix(strings.ToLower(s), "0x"); ok && !strings.ContainsAny(digits, ".p") {
		n, err := strconv.ParseUint(digits, 16, 64)
		return float64(n), err == nil
	}
	n, err := strconv.ParseFloat(s, 64)
	if err != nil && math.IsInf(n, 0) {
		return n, true // out of range
	}
	return n, err == nil
}

// infinite writes what is infinite as C does.
var infinite = strings.NewReplacer("+Inf", "inf", "Inf", "inf")

// format is string.format.
func format(l *lua.LState) int {
	pattern := l.CheckString(1)
	var b strings.Builder
	argument := 1
	for {
		before, rest, found := strings.Cut(pattern, "%")
		b.WriteString(before)
		if !found {
			break
		}
		end := strings.IndexFunc(rest, func(r rune) bool { return !strings.ContainsRune("-+ #0123456789.", r) })
		if end < 0 {
			l.RaiseError("invalid option '%%' to 'format'")
		}
		flags, verb := rest[:end], rest[end]
		pattern = rest[end+1:]
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		argument++
		switch verb {
		case 'd', 'i':
			fmt.Fprintf(&b, "%"+flags+"d", int64(l.CheckNumber(argument)))
		case 'u', 'o', 'x', 'X':
			fmt.Fprintf(&b, "%"+flags+strings.Replace(string(verb), "u", "d", 1), uint64(l.CheckNumber(argument)))
		case 'c':
			b.WriteByte(byte(l.CheckNumber(argument)))
		case 'e', 'E', 'f', 'g', 'G':
			text := fmt.Sprintf("%"+flags+string(verb), float64(l.CheckNumber(argument)))
			b.WriteString(infinite.Replace(text))
		case 'q':
			quote(&b, l.CheckString(argument))
		case 's':
			fmt.Fprintf(&b, "%"+flags+"s", l.CheckString(argument))
		default:
			l.RaiseError("invalid option '%%%c' to 'format'", verb)
		}
	}
	l.Push(lua.LString(b.String()))
	return 1
}

// quote writes s as Lua reads it.
func quote(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\r':
			b.WriteString(`\r`)
		case 0:
			b.WriteString(`\000`)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
