package spelling

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"database_url", "database_direct_url", "relay_addr", "relay_tls", "roles", "serve", "create"}
	for name, want := range map[string]string{
		"databse_url": "database_url", "DATABASE_URL": "database_url", "datbaase_url": "database_url",
		"database": "database_url", "database_dir": "database_direct_url", "relayaddr": "relay_addr", "role": "roles",
		"sevre": "serve", "srv": "", "serv": "serve", "creat": "create", "colour": "", "": "", "x": "", "re": "",
		"rel": "relay_tls",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
	if got := Nearest("abc", nil); got != "" {
		t.Errorf("of none, %q is nearest", got)
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abd", 1}, {"abc", "acb", 1}, {"abcd", "bcd", 1},
		{"kitten", "sitting", 3}, {"ca", "abc", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
