package users

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/postrider/postrider/internal/lib/fault"
)

const (
	minPassword = 10  // characters
	maxPassword = 256 // characters
	maxHashes   = 4   // maximum number of concurrent hash computations, each of which uses the memory in defaultCost
	maxWaiting  = 64  // maximum number of callers that may wait for a hash computation
)

// hashCost contains the cost parameters of an argon2id hash (RFC 9106).
type hashCost struct {
	memory  uint32 // KiB
	passes  uint32
	threads uint8
}

// defaultCost is the cost of new hashes: the minimum that OWASP recommends for argon2id, which takes about 30 ms. With
// a higher memory cost, a few concurrent sign-ins could use up memory that mail delivery needs.
var defaultCost = hashCost{19 << 10, 2, 1}

// maxCost is the highest cost that a stored hash may have; hashes with higher costs are not checked.
var maxCost = hashCost{1 << 20, 100, 16}

const (
	saltSize = 16
	keySize  = 32
)

// hasher creates and checks password hashes and limits the number of concurrent computations. The zero value of hasher
// is ready to use.
type hasher struct {
	cheap   hashCost // reduced cost for tests; the zero value means defaultCost
	once    sync.Once
	slots   chan struct{}
	waiting chan struct{}
}

var errBusy = fault.New(fault.TooFast, "", "Too many people sign in at this moment. Try again in a few seconds.")

// acquire waits for permission to compute one hash. After a successful acquire, the caller must call release. If too
// many callers are waiting, acquire returns errBusy.
func (h *hasher) acquire(ctx context.Context) error {
	h.once.Do(func() {
		h.slots = make(chan struct{}, min(maxHashes, runtime.GOMAXPROCS(0)))
		h.waiting = make(chan struct{}, maxWaiting)
	})
	select {
	case h.waiting <- struct{}{}:
		defer func() { <-h.waiting }()
	default:
		return errBusy
	}
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *hasher) release() { <-h.slots }

func (h *hasher) cost() hashCost {
	if h.cheap != (hashCost{}) {
		return h.cheap
	}
	return defaultCost
}

// make returns the hash of a password.
func (h *hasher) make(ctx context.Context, password string) (string, error) {
	if err := h.acquire(ctx); err != nil {
		return "", err
	}
	defer h.release()
	salt := make([]byte, saltSize)
	rand.Read(salt)
	return h.cost().text(salt, h.cost().key(password, salt, keySize)), nil
}

// check reports whether a password matches a hash, and whether the hash's cost differs from the cost of new hashes. No
// password matches an empty hash, but the check takes as long as for a real hash.
func (h *hasher) check(ctx context.Context, password, hash string) (ok, weak bool, err error) {
	if err := h.acquire(ctx); err != nil {
		return false, false, err
	}
	defer h.release()
	if hash == "" {
		h.cost().key(password, make([]byte, saltSize), keySize)
		return false, false, nil
	}
	p, salt, key, err := parseHash(hash)
	if err != nil {
		return false, false, fmt.Errorf("read the hash of a password: %w", err)
	}
	ok = subtle.ConstantTimeCompare(p.key(password, salt, uint32(len(key))), key) == 1
	return ok, p != h.cost(), nil
}

// key derives the argon2id key from a password. The password is first normalized to NFC, because keyboards differ in
// how they compose characters.
func (p hashCost) key(password string, salt []byte, size uint32) []byte {
	return argon2.IDKey([]byte(norm.NFC.String(password)), salt, p.passes, p.memory, p.threads, size)
}

// text encodes a hash for storage, in the format of argon2's reference implementation.
func (p hashCost) text(salt, key []byte) string {
	b64 := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.passes, p.threads, b64(salt),
		b64(key))
}

var errHash = errors.New("not a hash by argon2id of a known form")

// parseHash decodes a hash that was encoded by hashCost.text.
func parseHash(hash string) (p hashCost, salt, key []byte, err error) {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return p, nil, nil, errHash
	}
	costs := strings.Split(parts[3], ",")
	if len(costs) != 3 {
		return p, nil, nil, errHash
	}
	memory, err1 := cost(costs[0], "m=", maxCost.memory)
	passes, err2 := cost(costs[1], "t=", maxCost.passes)
	threads, err3 := cost(costs[2], "p=", uint32(maxCost.threads))
	salt, err4 := base64.RawStdEncoding.Strict().DecodeString(parts[4])
	key, err5 := base64.RawStdEncoding.Strict().DecodeString(parts[5])
	p = hashCost{memory, passes, uint8(min(threads, math.MaxUint8))}
	if errors.Join(err1, err2, err3, err4, err5) != nil || len(salt) < 8 || len(salt) > 64 || len(key) < 16 ||
		len(key) > 64 || p.memory < 8*uint32(p.threads) || p.text(salt, key) != hash {
		return hashCost{}, nil, nil, errHash
	}
	return p, salt, key, nil
}

func cost(text, name string, most uint32) (uint32, error) {
	digits, ok := strings.CutPrefix(text, name)
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n < 1 || n > uint64(most) {
		return 0, errHash
	}
	return uint32(n), nil
}

// commonWords are words that people often use as passwords with only a few digits added.
var commonWords = []string{"password", "passwort", "passw0rd", "motdepasse", "contrasena", "letmein", "welcome",
	"iloveyou",
	"administrator", "changeme", "default", "monkey", "dragon", "sunshine", "princess", "football", "baseball",
	"superman", "trustno", "whatever", "postrider", "resend", "secret", "qwertz", "qwerty"}

// keySequences are well-known character sequences such as digits, letters or adjacent keys.
var keySequences = []string{"01234567890123456789", "98765432109876543210", "abcdefghijklmnopqrstuvwxyz",
	"qwertyuiopasdfghjklzxcvbnm", "qwertzuiopasdfghjklyxcvbnm", "azertyuiopqsdfghjklmwxcvbn",
	"1q2w3e4r5t6z7u8i9o0p", "1q2w3e4r5t6y7u8i9o0p",
	"1qaz2wsx3edc4rfv5tgb6yhn7ujm"}

// checkPassword returns a fault for a password that is too short, too long or easily guessed. Passwords are not checked
// against lists of leaked passwords, because the limits on sign-in attempts protect against guessing from such lists.
func checkPassword(password, email, name string) error {
	n := utf8.RuneCountInString(password)
	switch {
	case !utf8.ValidString(password) || strings.ContainsRune(password, 0):
		return fault.Invalidf("password", "The password must be text.")
	case n < minPassword:
		return fault.Invalidf("password", "The password must have at least %d characters; a few words that do not "+
			"belong together are good.", minPassword)
	case n > maxPassword:
		return fault.Invalidf("password", "The password must have at most %d characters.", maxPassword)
	}
	low := strings.ToLower(norm.NFC.String(password))
	// When common words and the user's own names have been removed from the password, at least six characters must remain,
	// including a letter.
	local, domain, _ := strings.Cut(email, "@")
	host, _, _ := strings.Cut(domain, ".")
	rest := low
	for _, word := range append([]string{email, local, domain, host, strings.ToLower(name)}, commonWords...) {
		if utf8.RuneCountInString(word) >= 4 {
			rest = strings.ReplaceAll(rest, word, "")
		}
	}
	distinct := map[rune]bool{}
	for _, r := range low {
		distinct[r] = true
	}
	letters := strings.ContainsFunc(rest, unicode.IsLetter)
	if len(distinct) < 5 || isKeySequence(low) || rest != low && (!letters || utf8.RuneCountInString(rest) < 6) {
		return fault.Invalidf("password", "This password is easily guessed; take one that has nothing to do with you, "+
			"such as a few words that do not belong together.")
	}
	return nil
}

// isKeySequence reports whether a string is part of one of keySequences, forwards or backwards, or repeats such a part.
func isKeySequence(text string) bool {
	for _, run := range keySequences {
		back := []rune(run)
		for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
			back[i], back[j] = back[j], back[i]
		}
		for _, r := range []string{run, string(back)} {
			if strings.Contains(r, text) {
				return true
			}
			// This loop finds strings that repeat part of a sequence.
			for n := 4; n <= len(text)/2; n++ {
				rest := strings.ReplaceAll(text, text[:n], "")
				if strings.Contains(r, text[:n]) && strings.Trim(rest, "0123456789!.") == "" {
					return true
				}
			}
		}
	}
	return false
}
