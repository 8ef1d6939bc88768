package users

import (
	"context"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
)

func TestHash(t *testing.T) {
	t.Parallel()
	var h hasher
	ctx := t.Context()
	one, err := h.make(ctx, "p\u00e4ssword of mine")
	if err != nil {
		t.Fatal(err)
	}
	two, err := h.make(ctx, "p\u00e4ssword of mine")
	if err != nil {
		t.Fatal(err)
	}
	if one == two || !strings.HasPrefix(one, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("hashes %q and %q", one, two)
	}
	for password, want := range map[string]bool{"p\u00e4ssword of mine": true, "pa\u0308ssword of mine": true,
		"P\u00e4ssword of mine": false, "": false, "p\u00e4ssword of mine ": false} {
		if ok, weak, err := h.check(ctx, password, one); ok != want || weak || err != nil {
			t.Errorf("%q: %v, %v, %v; want %v", password, ok, weak, err, want)
		}
	}
	if ok, _, err := h.check(ctx, "", ""); ok || err != nil {
		t.Errorf("no hash: %v, %v", ok, err)
	}
	// Expected output of the reference implementation: echo -n password | argon2 somesalt -id -t 2 -k 65536 -p 1 -l 24 -e
	const reference = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	if ok, weak, err := h.check(ctx, "password", reference); !ok || !weak || err != nil {
		t.Errorf("the reference's hash: %v, %v, %v", ok, weak, err)
	}
	if _, _, err := h.check(ctx, "x", "$2a$10$x"); err == nil {
		t.Error("a hash of another form was taken")
	}
}

// TestHashesAreFew checks that hash computations wait while the maximum number is running, and are refused while too
// many others are waiting.
func TestHashesAreFew(t *testing.T) {
	t.Parallel()
	var h hasher
	taken := 0
	if err := h.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	for taken = 1; taken < cap(h.slots); taken++ {
		if err := h.acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	for range maxWaiting + 20 {
		go func() { errs <- h.acquire(ctx) }()
	}
	for range 20 { // the others wait
		if err := <-errs; fault.KindOf(err) != fault.TooFast {
			t.Errorf("beyond those that wait: %v", err)
		}
	}
	cancel()
	for range maxWaiting {
		if err := <-errs; err != context.Canceled {
			t.Errorf("one that waited: %v", err)
		}
	}
	for range taken {
		h.release()
	}
	if err := h.acquire(t.Context()); err != nil {
		t.Errorf("with free places: %v", err)
	}
}

func TestCheckPassword(t *testing.T) {
	t.Parallel()
	for password, ok := range map[string]bool{
		"seven lamps, one bridge":      true,
		"correct horse battery staple": true,
		"kV8#mQ2!xz":                   true,
		"\u4f60\u597d\u4e16\u754c\u5929\u5730\u7384\u9ec4\u5b87\u5b99": true,
		"my dog eats passwords at night":                               true,
		"ada likes warm rain":                                          true,
		"short":                                                        false,
		"ninechars":                                                    false,
		strings.Repeat("ab cd efg", 29):                                false,
		"aaaaaaaaaaaaaaa":                                              false,
		"abababababab":                                                 false,
		"password123":                                                  false,
		"Password2026!":                                                false,
		"PASSWORT!!!!":                                                 false,
		"1234567890":                                                   false,
		"12345678901234":                                               false,
		"0987654321":                                                   false,
		"qwertyuiop":                                                   false,
		"poiuytrewq":                                                   false,
		"qwertyqwerty1":                                                false,
		"abcdefghijkl":                                                 false,
		"1q2w3e4r5t6z":                                                 false,
		"ada@example.com":                                              false,
		"ada@example.com1":                                             false,
		"example2026":                                                  false,
		"lovelace1815":                                                 false,
		"iloveyou1234":                                                 false,
		"postrider2026":                                                false,
		"a\x00bcdefghijkm":                                             false,
		"\xffbcdefghijkm":                                              false,
	} {
		err := checkPassword(password, "ada@example.com", "Lovelace")
		if (err == nil) != ok {
			t.Errorf("%q: %v", password, err)
		}
		if err != nil && (fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), password)) {
			t.Errorf("%q: fault %v", password, err)
		}
	}
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"192.0.2.7":            "192.0.2.7",
		"::ffff:192.0.2.7":     "192.0.2.7",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64 2001:db8:1::/56 2001:db8:1::/48",
		"[2001:db8:1:ff02::9]": "2001:db8:1:ff02::/64 2001:db8:1:ff00::/56 2001:db8:1::/48",
		"fe80::1%eth0":         "fe80::/64 fe80::/56 fe80::/48",
		"":                     "",
		"example.com":          "",
		"192.0.2.7:443":        "",
	} {
		if got := strings.Join(networks(address), " "); got != want {
			t.Errorf("networks(%q) = %q, want %q", address, got, want)
		}
	}
}

// FuzzHash checks that every hash that the parser accepts is within the cost limits and is encoded to the same string
// again.
func FuzzHash(f *testing.F) {
	for _, seed := range []string{"",
		"$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc",
		"$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHRzYWx0$CTFhFdXPJO1aFaMaO6Mm5Q", "$argon2i$v=19$m=64,t=1,p=1$$",
		"$argon2id$v=19$m=4294967295,t=4294967295,p=255$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5Q",
		"$argon2id$v=19$m=064,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5Q", "$2a$10$N9qo8uLOickgx2ZMRZoMye", "$$$$$"} {
		f.Add(seed)
	}
	for _, sizes := range [][2]int{{7, 32}, {8, 16}, {64, 64}, {65, 32}, {16, 15}, {16, 65}} {
		f.Add(defaultCost.text(make([]byte, sizes[0]), make([]byte, sizes[1])))
	}
	f.Fuzz(func(t *testing.T, hash string) {
		p, salt, key, err := parseHash(hash)
		if err != nil {
			return
		}
		if p.text(salt, key) != hash || p.memory > maxCost.memory || p.passes > maxCost.passes ||
			p.threads > maxCost.threads || p.threads < 1 || p.passes < 1 || len(key) < 16 || len(key) > 64 ||
			len(salt) < 8 || len(salt) > 64 {
			t.Errorf("%q was read as %+v", hash, p)
		}
	})
}

// FuzzPassword checks that every password accepted by checkPassword has at least minPassword characters.
func FuzzPassword(f *testing.F) {
	for _, seed := range []string{"", "password123", "seven lamps, one bridge", "\xff", strings.Repeat("1q2w3e", 50)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, password string) {
		if err := checkPassword(password, "ada@example.com", "Ada"); err == nil && len([]rune(password)) < minPassword {
			t.Errorf("%q was taken", password)
		}
	})
}
