package web

import "sync"

// During an outage, a form is read to repeat it although the session cannot be looked up. The number of forms of more
// than 64 KB that are in memory at the same time is therefore limited. A browser's signed cookie names the user who was
// signed in last; these users have a share that other visitors cannot take, and each of them has a part of it.
const (
	largeGuests = 8
	largeUsers  = 32
	largeUser   = 2
)

// largeForms counts the large forms in memory. The zero value is ready for use.
type largeForms struct {
	mu     sync.Mutex
	guests int
	users  int
	user   map[string]int
}

// acquire counts a form of a user, or of a visitor whose user is not known if userID is "". If ok is true, the caller
// must call release.
func (l *largeForms) acquire(userID string) (release func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if userID == "" {
		if l.guests == largeGuests {
			return nil, false
		}
		l.guests++
		return func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.guests--
		}, true
	}
	if l.users == largeUsers || l.user[userID] == largeUser {
		return nil, false
	}
	if l.user == nil {
		l.user = map[string]int{}
	}
	l.users++
	l.user[userID]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.users--
		if l.user[userID]--; l.user[userID] == 0 {
			delete(l.user, userID)
		}
	}, true
}
