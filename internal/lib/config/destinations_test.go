package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseDestinations(t *testing.T) {
	t.Parallel()
	got, err := ParseDestinations("d.toml", []byte(`
		[google]
		hosts = ["*.Google.com"]
		providers = ["google"]
		connections = 10
		messages_per_connection = 50
		rate = "600/m"
		[corp]
		domains = ["Corp.example.", "*.corp.example"]
		tls = "required"
		retry_schedule = ["1m", "1h"]
		retry_for = "24h"
		relay = "corp"
		["everybody else"]
		domains = ["*"]
		paused = true
		reason = "We move."
		rate = "1800 / h"`), []string{"corp"})
	if err != nil {
		t.Fatal(err)
	}
	want := []Destination{
		{Name: "corp", Domains: []string{"corp.example", "*.corp.example"}, TLS: "required",
			Schedule: []time.Duration{time.Minute, time.Hour}, Lifetime: 24 * time.Hour, Relay: "corp"},
		{Name: "everybody else", Domains: []string{"*"}, Paused: true, Reason: "We move.", Rate: 0.5},
		{Name: "google", Hosts: []string{"*.google.com"}, Providers: []string{"google"}, Connections: 10, Messages: 50,
			Rate: 10},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if all, err := ParseDestinations("d.toml", nil, nil); err != nil || len(all) != 0 {
		t.Errorf("an empty file: %v, %v", all, err)
	}
}

func TestProblemsOfDestinations(t *testing.T) {
	t.Parallel()
	const a = "[a]\ndomains = [\"a.example\"]\n"
	for _, x := range []struct{ name, file, want string }{
		{"syntax", "[a", "d.toml: toml: line 1"},
		{"no table", "rate = 1", "d.toml: rate: is not a table"},
		{"key", a + "conections = 1", "d.toml: [a].conections: is unknown; did you mean connections?"},
		{"empty key", a + `"" = 1`, "is unknown; use domains, hosts"},
		{"names nothing", "[a]\nrate = \"1/s\"", "[a]: names no destination"},
		{"connections", a + "connections = -1", "[a].connections: is -1"},
		{"no connections", a + "connections = 0", "[a].connections: is 0, must be between 1"},
		{"no messages", a + "messages_per_connection = 0", "[a].messages_per_connection: is 0"},
		{"no lifetime", a + "retry_for = \"0s\"", "[a].retry_for: is 0s"},
		{"messages", a + "messages_per_connection = 2000000", "must be between 1 and 1000000"},
		{"type", a + "connections = \"many\"", "[a].connections: \"many\" is not a whole number"},
		{"rate", a + "rate = 5", `[a].rate: "5" is not a rate`},
		{"rate unit", a + "rate = \"5/d\"", "is not a rate"},
		{"no rate", a + "rate = \"0/s\"", "is not a rate"},
		{"not a number", a + "rate = \"NaN/s\"", "is not a rate"},
		{"low rate", a + "rate = \"0.0001/h\"", "is too low"},
		{"tls", a + "tls = \"implicit\"", `[a].tls: "implicit" is not known`},
		{"schedule", a + "retry_schedule = \"1ms\"", "[a].retry_schedule"},
		{"long schedule", a + "retry_schedule = \"" + strings.Repeat("1m,", 101) + "\"", "has 101 waits"},
		{"lifetime", a + "retry_for = \"1s\"", "[a].retry_for"},
		{"reason", a + "reason = \"x\"", "[a].reason: has no effect"},
		{"long reason", a + "paused = true\nreason = \"" + strings.Repeat("x", 501) + "\"", "has 501 bytes"},
		{"relay", a + "relay = \"copr\"", `[a].relay: "copr": there is no relay with this name; did you mean corp?`},
		{"domain", "[a]\ndomains = [\"a@b\"]", `[a].domains: "a@b" is not known`},
		{"host", "[a]\nhosts = [\"*\"]", `[a].hosts: "*" is not known`},
		{"provider", "[a]\nproviders = [\"gogle\"]", "use one of apple"},
		{"twice", a + "[b]\ndomains = [\"A.example.\"]", "[b].domains: a.example is also in [a]"},
	} {
		if _, err := ParseDestinations("d.toml", []byte(x.file), []string{"corp"}); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want %q", x.name, err, x.want)
		}
	}
	_, err := ParseDestinations("d.toml", []byte(a+"x = 1\n[b]\nhosts = [\"b.example\"]\nrate = 1\n[c]\n"), nil)
	if n := len(strings.Split(err.Error(), "\n")); n != 3 {
		t.Errorf("%d problems at once: %v", n, err)
	}
}

func FuzzParseDestinations(f *testing.F) {
	f.Add("[a]\ndomains = [\"*.a.example\"]\nrate = \"10/m\"\n[b]\nhosts = [\"mx\"]\nretry_schedule = [\"1m\"]")
	f.Add("[a.b]\nc = [[1]]\n[[d]]\nname = 2000-01-01")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ParseDestinations("f", []byte(text), []string{"corp"})
		if err != nil {
			return
		}
		for _, d := range all {
			if len(d.Domains)+len(d.Hosts)+len(d.Providers) == 0 || d.Connections < 0 || d.Rate < 0 {
				t.Errorf("%+v is accepted", d)
			}
		}
	})
}
