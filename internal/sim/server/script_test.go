package server

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/redistest"
)

// Each script has the same result, or error, as on a real server.
func TestScripts(t *testing.T) {
	results := []string{
		`1`, `3.99`, `-3.99`, `1e15`, `2^53`, `2^62`, `'x'`, `''`, `nil`, `true`, `false`, `{}`, `{1, 'x', 2.5}`, `{1, false, 3}`, `{1, nil, 3}`, `{1, {2, {'x'}}, true}`,
		`{err = 'CODE said'}`, `{ok = 'fine'}`, `{1, {err = 'CODE said'}}`, `redis.error_reply('CODE said so')`, `redis.error_reply('CODE')`, `redis.error_reply('-CODE said')`, `redis.status_reply('fine')`,
		`redis.sha1hex('x')`, `KEYS[1] .. ARGV[1] .. #KEYS .. #ARGV`, `KEYS`, `ARGV[3]`,
		`redis.call('GET', 'none')`, `redis.call('GET', 'none') == false`, `redis.call('SET', 'k', 1)`, `redis.call('SET', 'k', 'v').ok`, `type(redis.call('SET', 'k', 'v'))`,
		`redis.call('SET', 'k', 2^53 + 2) and redis.call('GET', 'k')`, `redis.call('SET', 'k', 1764000000123456) and redis.call('GET', 'k')`,
		`redis.call('SET', 'k', -1.5) and redis.call('GET', 'k')`,
		`redis.call('MGET', 'none', 'k')`, `redis.call('MGET', 'none')[1] == false`, `redis.call('PTTL', 'none')`, `type(redis.call('PTTL', 'none'))`,
		`redis.call('GET', 'list')`, `redis.pcall('GET', 'list')`, `redis.pcall('GET', 'list').err`, `type(redis.pcall('GET', 'list'))`, `redis.pcall('NOSUCH')`, `redis.call('NOSUCH')`, `redis.pcall('GET')`, `redis.pcall('SET', 'k', 'v', 'PX', 0).err`,
		`redis.call('GET', {})`, `redis.call()`, `redis.pcall('GET', nil)`,
		`redis.call('ZADD', 'z', 1764000000123456, 'm')`, `redis.call('ZSCORE', 'z', 'm')`, `redis.call('ZSCORE', 'z', 'none')`, `redis.call('ZRANK', 'z', 'none')`, `redis.call('ZRANGE', 'z', 0, 0)[1]`, `redis.call('ZRANGE', 'none', 0, 0)[1]`,
		`redis.call('ZRANGE', 'z', '-inf', '(' .. 1764000000123, 'BYSCORE', 'LIMIT', 0, 64)`,
		`tonumber('12')`, `tonumber(' 12 ')`, `tonumber('1e3')`, `tonumber('0x10')`, `tonumber('012')`, `tonumber('')`, `tonumber('x')`, `tonumber('1_0')`, `tonumber(false)`, `tonumber('99999999999999999999') > 1e19`, `tonumber('ff', 16)`,
		`'10' + 5`, `'3' * '4'`, `10 / 4`, `'1764000000' * 1000000 + '123456'`, `7 % 3`, `-7 % 3`, `math.floor(1764000000123456 / 1000)`, `math.floor('9' / 2)`, `math.max(1, 2.5) * 2`,
		`string.format('%.0f', 1764000000123456)`, `string.format('%016.0f', 123)`, `string.format('%.0f %.0f', 1 / 0, -1 / 0)`, `string.format('%d', 3.7)`, `string.format('%5d|%-5d|%05d', 1, 2, 3)`, `string.format('%s %q', 'a', 'b"c\n')`, `string.format('%x %g %5.2f %%', 255, 1e20, 1.005)`,
		`string.sub('abcdef', 2, -2)`, `string.sub('abcdef', -3)`, `string.sub('abc', -81, -42)`, `string.sub('abc', 1, -18)`, `string.byte('-')`, `string.byte('abc', 2)`,
		`{string.match('who 12 from me', '^(%S+) (%d+) ?(.*)$')}`, `{string.match('who 12', '^(%S+) (%d+) ?(.*)$')}`, `string.match('who', '^(%S+) (%d+)')`, `string.match('p/1', '^[^/]*')`, `string.match('calls=3,usec\r\n', 'calls=([^,\r]*)')`,
		`string.find('WRONGTYPE x', 'WRONGTYPE', 1, true)`, `{string.find('abc123', '%d+')}`, `string.find('123', '^%d+$')`, `string.find('12a', '^%d+$')`, `string.find('abc', 'd', 1, true)`, `string.gsub('a1b2', '%d', 'x')`,
		`'abc' < 'abd'`, `'10' < '9'`, `'1764' >= '1764'`, `#'abc'`, `table.concat({'a', 'b'}, ',')`, `table.concat({})`, `{unpack({1, 2, 3})}`, `select('#', 1, nil)`, `type(nil)`, `tostring(12)`, `tostring(nil)`, `12 .. ''`, `1.5 .. 'x'`,
		`nothing`, `error('said')`, `nil + 1`, `('x')()`, `#nil`,
	}
	onEachFlavor(t, func(c *comparison) {
		for _, command := range [][]string{{"RPUSH", "list", "x"}} {
			c.real(command...)
			c.ours.Exec(command)
		}
		scripts := []string{"local x = 1", "x = 1", "syntax error", "local t = {} for i, v in ipairs({5, 6}) do t[#t + 1] = v * i end return t", "redis.call('GET', 'list')\nreturn 1"}
		for _, result := range results {
			scripts = append(scripts, "return "+result)
		}
		for _, script := range scripts {
			eval := []string{"EVAL", script, "2", "one", "two", "three", "4"}
			if real, ours := c.real(eval...), plain(c.ours.Exec(eval)); !sameResult(real, ours) {
				t.Errorf("%s\n\tthe server answers    %#v\n\tthe simulated server %#v", script, real, ours)
			}
		}
	})
}

// sameResult reports whether two results are the same, but for the words of an error that is
// the server's or the interpreter's own, which versions put in different ways.
func sameResult(real, ours any) bool {
	if refusal, ok := real.(redistest.ServerError); ok {
		code, _, _ := strings.Cut(string(refusal), " ")
		if code == "ERR" || code == "NOSCRIPT" {
			other, ok := ours.(redistest.ServerError)
			return ok && strings.HasPrefix(string(other), code+" ")
		}
	}
	return fmt.Sprintf("%#v", real) == fmt.Sprintf("%#v", ours)
}

// The script cache forgets, and is asked, as a real one is.
func TestScriptCache(t *testing.T) {
	onEachFlavor(t, func(c *comparison) {
		const text, failing = "return 'x'", "return nothing"
		sha := SHA(text)
		for _, command := range [][]string{
			{"EVALSHA", sha, "0"}, {"SCRIPT", "LOAD", text}, {"EVALSHA", sha, "0"}, {"SCRIPT", "EXISTS", sha, SHA(failing)}, {"SCRIPT", "FLUSH"},
			{"EVALSHA", sha, "0"}, {"EVAL", text, "0"}, {"EVALSHA", sha, "0"}, {"EVAL", failing, "0"}, {"SCRIPT", "EXISTS", SHA(failing)},
			{"EVAL", text, "1"}, {"EVAL", text, "x"}, {"EVAL", text, "-1"}, {"EVAL", text}, {"SCRIPT", "LOAD", "("}, {"SCRIPT", "EXISTS", SHA("(")},
		} {
			if real, ours := c.real(command...), plain(c.ours.Exec(command)); !sameResult(real, ours) {
				t.Errorf("%q: the server answers %#v, the simulated one %#v", command, real, ours)
			}
		}
	})
}
