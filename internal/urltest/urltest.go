// Package urltest writes URLs of servers, well formed or not, with a secret in
// them, for tests that no message repeats it.
package urltest

import "strings"

// passwords are ways to write a password with the secret between the two parts.
// What has to be escaped in a URL is not, in most.
var passwords = [][2]string{
	{"", ""}, {"p%2F", ""}, {"p%40", "%3A"},
	{"p/", ""}, {"", "/w"}, {"p#", ""}, {"", "#w"}, {"p?", ""}, {"", "?x"}, {"a@", ""}, {"", "@b"}, {"p:", ""}, {"", ":w"},
	{"p%", ""}, {"", "%"}, {"%zz", ""}, {"p ", ""}, {"p\t", ""}, {"p\n", ""}, {"p[", ""}, {"p]", ""}, {`p\`, ""}, {`p"`, ""}, {"p'", ""},
	{"p,", ""}, {"p;", ""}, {"p&", ""}, {"p+", ""}, {"p=", ""}, {"p|", ""}, {"p<", ">"}, {"é", ""}, {"\xff", ""}, {"\x1b[31m", ""},
	// A password that begins with digits makes the user a host and these its port.
	{"12/", ""}, {"12/3/", ""}, {"12?", ""}, {"12#", ""}, {"12?x=", ""}, {"12?db=", ""}, {"12?addr=", ""}, {"12?cluster=", ""},
	{"12?skip_verify=", ""}, {"12?master_set=", ""}, {"12/0#", ""}, {"12/0?db=1#", ""}, {"12,", ""}, {"12,x", ",y"}, {"12@", "/"}, {"12/@", ""},
}

// servers are what follows the @.
var servers = []string{
	"127.0.0.1:1", "127.0.0.1:1/0", "127.0.0.1:1/1?db=2", "127.0.0.1:1/#name", "127.0.0.1:1?addr=127.0.0.1:2&master_set=m",
	"127.0.0.1:1?cluster", "127.0.0.1:port", "127.0.0.1:65536", "127.0.0.1:1/one", "127.0.0.1:1?timeout=5s", "[::1", "", "/run/none.sock",
}

// others have the secret, %s, where no password is looked for.
var others = []string{
	"redis://127.0.0.1:1?master_set=m&sentinel_password=%s", "redis://127.0.0.1:1?sentinel_password=%s&master_set=m",
	"redis://127.0.0.1:1?sentinel_password=a&sentinel_password=%s&master_set=m", "redis://127.0.0.1:1?sentinel_password=%s&sentinel_password=a&master_set=m",
	"redis://u:p@127.0.0.1:1?sentinel_username=%s&sentinel_password=q&master_set=m", "redis://127.0.0.1:1?sentinel_password=%s",
	"redis://127.0.0.1:1?sentinel_password=p/%s&master_set=m", "redis://127.0.0.1:1?sentinel_password=p#%s&master_set=m",
	"redis://127.0.0.1:1?sentinel_password=p?%s&master_set=m", "redis://127.0.0.1:1?sentinel_password=a@%s&master_set=m",
	"redis://127.0.0.1:1?sentinel_password=a;%s&master_set=m", "redis://127.0.0.1:1?sentinel_password=a%%zz%s&master_set=m",
	"redis://127.0.0.1:1?sentinel_password=a&%s&master_set=m", "redis://127.0.0.1:1?sentinel_password=a&%s=b&master_set=m",
	"redis://127.0.0.1:1?sentinel_password=%s&master_set=m#name", "redis://127.0.0.1:1/5?master_set=m&sentinel_password=%s", "redis://127.0.0.1:1?SENTINEL_PASSWORD=%s&master_set=m",
	"rediss://127.0.0.1:1?master_set=m&sentinel_password=%s", "valkey://127.0.0.1:1?master_set=m&sentinel_password=%s",
	"redis://127.0.0.1:1?cluster&sentinel_password=%s", "unix:///run/none.sock?sentinel_password=%s&master_set=m",
	"redis://127.0.0.1:1?password=%s", "redis://127.0.0.1:1?user=u&pass=%s", "redis://127.0.0.1:1?%s", "redis://127.0.0.1:1?%s=1", "redis://127.0.0.1:1?;%s",
	"redis://127.0.0.1:1?db=%s", "redis://127.0.0.1:1?db=0&db=%s", "rediss://127.0.0.1:1?skip_verify=%s", "redis://127.0.0.1:1?skip_verify=%s",
	"redis://127.0.0.1:1?cluster=%s", "redis://127.0.0.1:1?addr=u:%s@127.0.0.1:2", "redis://127.0.0.1:1?addr=%s@127.0.0.1:2", "redis://127.0.0.1:1?addr=u:%s%%40127.0.0.1:2",
	"redis://127.0.0.1:1?addr=redis://u:%s@127.0.0.1:2", "redis://127.0.0.1:1?addr=127.0.0.1:%s", "redis://127.0.0.1:1?addr=127.0.0.1:2/%s",
	"redis://127.0.0.1:1/%s", "redis://127.0.0.1:1/0/%s", "redis://127.0.0.1:%s", "redis://127.0.0.1:1:%s", "redis://u:%s", "redis://:%s", "redis://u:%s/0",
	"redis://u/%s@127.0.0.1:1", "redis://127.0.0.1:1@u:%s", "redis://127.0.0.1:1#u:%s@x", "redis://127.0.0.1:1#a=%s", "redis://127.0.0.1:1# %s", "redis://127.0.0.1:1#a\x1b%s",
	"redis://%s@127.0.0.1:1", "redis://%s:@127.0.0.1:1", "redis://%s:user@127.0.0.1:1", "redis://u:p@u:%s@127.0.0.1:1", "redis://u:p@@%s@127.0.0.1:1",
	"redis:u:%s@127.0.0.1:1", "redis:%s@127.0.0.1:1", "redis:/u:%s@127.0.0.1:1", "redis:///u:%s@127.0.0.1:1", "redis:%s", "redis:u:%s", "redis:/%s", "redis//u:%s@127.0.0.1:1", "redis://u:%s@127.0.0.1:1 ",
	"%s", "%s@127.0.0.1:1", ":%s@127.0.0.1:1", "u:%s@127.0.0.1:1", "//u:%s@127.0.0.1:1", "%s:u@127.0.0.1:1", "%s://127.0.0.1:1", "%s:127.0.0.1:1", "u:%s", "u:p/%s", "#%s", "?%s",
	"http://u:%s@127.0.0.1:1", "https://127.0.0.1:1/?password=%s", "redis+tls://u:%s@127.0.0.1:1", "REDIS://u:%s@127.0.0.1:1", "Redis://127.0.0.1:1?Password=%s",
	`"redis://u:%s@127.0.0.1:1"`, "'redis://u:%s@127.0.0.1:1'", "<redis://u:%s@127.0.0.1:1>", "REDLATCH_NODES=redis://u:%s@127.0.0.1:1", "--nodes=redis://u:%s@127.0.0.1:1",
	"redis://u:%s@127.0.0.1:1\x00", "\x1b[31mredis://u:%s@127.0.0.1:1", "redis://u:%s@127.0.0.1:1,redis://u:%s@127.0.0.1:2", "redis://u:%s@127.0.0.1:1,redis://u:%s@127.0.0.1:1",
	"redis://u:%s@127.0.0.1:1;redis://u:%s@127.0.0.1:2", "redis://u:%s@127.0.0.1:1 redis://u:%s@127.0.0.1:2", "redis://u:%s@127.0.0.1:1,127.0.0.1:2", "redis://u:%s@a,b:1",
	"unix://u:%s/run/none.sock", "unix://u:12/%s@/run/none.sock", "unix:u:%s@/run/none.sock", "unix://u:%s@", "unix://u:%s@host/run/none.sock", "unix:///run/none.sock?password=%s",
}

// Others have the secret in one place of a URL each, and no password that is
// written in a wrong way.
func Others(secret string) []string { return fill(others, secret) }

// All are the URLs with each password before each server, and the others.
func All(secret string) []string {
	var forms []string
	for _, scheme := range []string{"redis://", "rediss://", "unix://"} {
		for _, user := range []string{"", "alice"} {
			for _, password := range passwords {
				for _, server := range servers {
					forms = append(forms, scheme+user+":"+password[0]+secret+password[1]+"@"+server)
				}
			}
		}
	}
	return append(forms, Others(secret)...)
}

// Few are the others, and each password before one server: for tests that take
// some time for each.
func Few(secret string) []string {
	var forms []string
	for _, password := range passwords {
		forms = append(forms, "redis://alice:"+password[0]+secret+password[1]+"@127.0.0.1:1", "redis://:"+password[0]+secret+password[1]+"@127.0.0.1:1/1#name")
	}
	return append(forms, Others(secret)...)
}

func fill(templates []string, secret string) []string {
	filled := make([]string, len(templates))
	for i, t := range templates {
		filled[i] = strings.ReplaceAll(strings.ReplaceAll(t, "%s", secret), "%%", "%")
	}
	return filled
}
