package config

import (
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelays(t *testing.T) {
	t.Parallel()
	src := source(`transport = "relay"
		relay_addr = "short.example:25"
		[[relays]]
		name = "main-1"
		address = "smtp.example.com:587"
		username = "user"
		[[relays]]
		name = "corp"
		address = "corp.example:25"
		username = "u"
		password_file = "/secret"
		tls = "required"
		domains = ["Corp.Example.", "*.corp.example"]
		from = ["mine.example"]`, map[string]string{"POSTRIDER_RELAY_MAIN_1_PASSWORD": "from variable"})
	read := src.ReadFile
	src.ReadFile = func(name string) ([]byte, error) {
		if name == "/secret" {
			return []byte("from file\n"), nil
		}
		return read(name)
	}
	c := load(t, src)
	want := []Relay{{Name: "relay", Address: "short.example:25", TLS: "opportunistic"},
		{Name: "main-1", Address: "smtp.example.com:587", Username: "user", Password: "from variable", TLS: "opportunistic"},
		{Name: "corp", Address: "corp.example:25", Username: "u", Password: "from file", PasswordFile: "/secret",
			TLS: "required", Domains: []string{"corp.example", "*.corp.example"}, From: []string{"mine.example"}}}
	if diff := cmp.Diff(want, c.AllRelays()); diff != "" {
		t.Errorf("relays (-want +got):\n%s", diff)
	}
	if r, ok := c.DefaultRelay(); !ok || r.Name != "relay" {
		t.Errorf("the relay without rules is %+v", r)
	}
	var text strings.Builder
	for _, v := range Values(c) {
		fmt.Fprintln(&text, v.Key, v.Text)
	}
	if s := text.String(); strings.Contains(s, "from variable") || strings.Contains(s, "from file") ||
		!strings.Contains(s, "relays.corp address corp.example:25; username (set); password (set)") {
		t.Errorf("values:\n%s", s)
	}
	c = load(t, source("transport = \"relay\"\n[[relays]]\nname = \"a\"\naddress = \"h:25\"", nil))
	if r, ok := c.DefaultRelay(); !ok || r.Name != "a" || len(c.AllRelays()) != 1 {
		t.Errorf("without relay_addr: %+v", c.AllRelays())
	}
}

func TestProblemsOfRelays(t *testing.T) {
	t.Parallel()
	relay := func(lines string) string {
		return "[[relays]]\nname = \"a\"\naddress = \"smtp.example.com:25\"\n" + lines
	}
	for _, x := range []struct{ name, file, want string }{
		{"no tables", "relays = 1", "relays (postrider.toml): must be tables"},
		{"key", relay("adress = 1"), "relays[1].adress (postrider.toml:4): is unknown; did you mean address?"},
		{"far key", relay("colour = 1"), "is unknown; use name, address, username"},
		{"setting after a table", relay("transport = \"relay\""), "relays[1].transport (postrider.toml:4): is a setting of " +
			"its own; write it before the first table, because the lines after the name of a table, such as [[relays]], " +
			"belong to that table"},
		{"setting after a region", "[regions.us]\nhostname = \"h.example\"", "regions.us.hostname (postrider.toml:2): is a " +
			"setting of its own; write it before the first table"},
		{"file of another user", relay("username = \"x\"\npassword_file = \"/denied\""), "relays.a.password_file " +
			"(postrider.toml:5): open /denied: permission denied; let the group of the node's user read the file, as with " +
			"`chgrp postrider FILE` and `chmod 640 FILE`, and run this command as that user"},
		{"type", relay("tls = [1]"), "relays[1].tls (postrider.toml:4): must be a single value"},
		{"second table", relay("") + "[[relays]] # another\nname = \"b\"\n\n  'tls' = \"yes\"\naddress = \"h:25\"",
			`relays.b.tls (postrider.toml:7): "yes" is not known`},
		{"no name", "[[relays]]\naddress = \"h:25\"", `relays[1].name (postrider.toml:1): "" is not a name`},
		{"name", "[[relays]]\nname = \"A b\"\naddress = \"h:25\"", "is not a name"},
		{"twice", relay("") + "# x\n" + relay(""), "relays.a.name (postrider.toml:6): another relay has the same name"},
		{"reserved", "relay_addr = \"h:25\"\n[[relays]]\nname = \"relay\"\naddress = \"h:25\"", "the same name"},
		{"address", "[[relays]]\nname = \"a\"\naddress = \"h\"", "relays.a.address"},
		{"password alone", relay(`password = "x"`), "relays.a.username (postrider.toml:1): and the password belong together"},
		{"user alone", relay(`username = "x"`), "POSTRIDER_RELAY_A_PASSWORD"},
		{"tls", relay(`tls = "yes"`), `relays.a.tls (postrider.toml:4): "yes" is not known`},
		{"in clear", relay("username = \"x\"\npassword = \"y\"\ntls = \"none\""), "in clear to smtp.example.com"},
		{"domain", relay(`domains = ["a@b"]`), `relays.a.domains (postrider.toml:4): "a@b" is not a domain`},
		{"pattern", relay(`from = ["x.*.example"]`), "relays.a.from"},
		{"no file", relay("username = \"x\"\npassword_file = \"/none\""), "relays.a.password_file"},
		{"both", relay("username = \"x\"\npassword = \"y\"\npassword_file = \"/none\""), "keep only one"},
		{"only rules", "transport = \"relay\"\n" + relay(`domains = ["b.example"]`), "relay_addr"},
		{"many", strings.Repeat(relay(""), relaysMax+1), "at most 50 are allowed"},
	} {
		src := source(x.file, nil)
		read := src.ReadFile
		src.ReadFile = func(name string) ([]byte, error) {
			switch name {
			case "/none":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			case "/denied":
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
			}
			return read(name)
		}
		_, err := Load(src)
		if strings.Contains(x.file, "password_file") && len(Problems(err)) != 1 {
			t.Errorf("%s: %v, want one problem", x.name, err)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
}
