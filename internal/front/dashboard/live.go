package dashboard

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/eventstream"
)

const (
	liveHeartbeat = 20 * time.Second // a comment that keeps proxies from closing a stream
	liveWriteTime = 10 * time.Second // maximum time to write an event
	liveMax       = 200              // streams of a team on this node
	liveMaxUser   = 20               // streams of a user in a team on this node
	livePause     = time.Second      // least time between two changes that a page is told
	liveRetry     = 3 * time.Second
)

// Browsers beyond liveMax and liveMaxUser get these errors. Their pages go on without live updates.
var (
	errManyStreams = fault.New(fault.TooFast, "", "Too many pages of this team follow its emails. Close some of them.")
	errManyOfUser  = fault.New(fault.TooFast, "", "You have too many pages open that follow emails. Close some of them.")
)

// feeds tells open pages that something about a team's emails has changed. All pages of a team on this node share one
// tail of the event stream. A page that is told reads its own part again, so an event that is lost or told twice does
// no harm.
type feeds struct {
	live *eventstream.Service

	mu    sync.Mutex
	teams map[string]*feed
}

// feed is the tail of one team, and the pages that listen to it.
type feed struct {
	pages map[chan string]string // the id of the user who looks at each page
	stop  context.CancelFunc
}

// follow returns a channel that receives the ids of emails, or "" for any. A page that does not keep up misses some. A
// user may follow a team on at most liveMaxUser pages, so that one member cannot take the streams of all others.
func (f *feeds) follow(teamID, userID string) (changes chan string, leave func(), err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := f.teams[teamID]
	if of != nil {
		own := 0
		for _, user := range of.pages {
			if user == userID {
				own++
			}
		}
		switch {
		case own >= liveMaxUser:
			return nil, nil, errManyOfUser
		case len(of.pages) >= liveMax:
			return nil, nil, errManyStreams
		}
	} else {
		ctx, stop := context.WithCancel(context.Background())
		of = &feed{pages: map[chan string]string{}, stop: stop}
		f.teams[teamID] = of
		go f.run(ctx, teamID, of)
	}
	changes = make(chan string, 16)
	of.pages[changes] = userID
	return changes, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(of.pages, changes)
		if len(of.pages) == 0 && f.teams[teamID] == of {
			delete(f.teams, teamID)
			of.stop()
		}
	}, nil
}

// run reads a team's events until the last page has left or the node stops. After an error it tries again, and tells
// the pages to read everything, because it may have missed events.
func (f *feeds) run(ctx context.Context, teamID string, of *feed) {
	for ctx.Err() == nil {
		err := f.read(ctx, teamID, of)
		if errors.Is(err, eventstream.ErrClosed) {
			f.end(teamID, of)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(liveRetry):
			f.tell(of, "")
		}
	}
}

func (f *feeds) read(ctx context.Context, teamID string, of *feed) error {
	tail, err := f.live.Open(ctx, teamID, nil, "")
	if err != nil {
		return err
	}
	defer tail.Close()
	for {
		all, err := tail.Next(ctx, time.Minute)
		if err != nil {
			return err
		}
		for _, m := range all {
			var payload struct {
				Data struct {
					EmailID string `json:"email_id"`
				} `json:"data"`
			}
			json.Unmarshal([]byte(m.Payload), &payload) // a payload without an email concerns any page
			f.tell(of, payload.Data.EmailID)
		}
	}
}

// tell passes a change to all pages of a feed.
func (f *feeds) tell(of *feed, emailID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for page := range of.pages {
		select {
		case page <- emailID:
		default: // the page reads everything when it comes to the changes before
		}
	}
}

// end closes the streams of all pages, because the node stops.
func (f *feeds) end(teamID string, of *feed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for page := range of.pages {
		close(page)
	}
	clear(of.pages)
	if f.teams[teamID] == of {
		delete(f.teams, teamID)
	}
}

// liveStream sends a server-sent event when an email changes: any, or the one that the parameter email names. The
// parameter domain leaves out emails. It checks with each event whether the visitor is still a member. Changes within
// livePause become one event, because each event costs statements, and a team may send a thousand emails a second.
func (c *call) liveStream() error {
	changes, leave, err := c.feeds.follow(c.team.TeamID, c.v.User.ID)
	if err != nil {
		return err
	}
	defer leave()
	only := cmp.Or(c.r.URL.Query().Get("email"), c.r.URL.Query().Get("domain"))
	h := c.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer the stream
	text := "retry: 2000\n\n"
	beat := time.NewTicker(liveHeartbeat)
	defer beat.Stop()
	var told time.Time
	var due <-chan time.Time // when the page is told of changes; nil if it knows all of them
	for writeLive(c.w, text) == nil {
		for text = ""; text == ""; {
			select {
			case <-c.ctx().Done():
				return nil
			case <-beat.C:
				text = ": still there\n\n"
			case id, open := <-changes:
				if !open {
					return nil
				}
				if due == nil && (only == "" || id == "" || id == only) {
					due = time.After(time.Until(told.Add(livePause)))
				}
			case told = <-due:
				text, due = "event: change\ndata: {}\n\n", nil
			}
		}
		if !c.stillMember() {
			return nil
		}
	}
	return nil // the browser is gone
}

// stillMember reports whether the visitor is still signed in and may still read the team's emails.
func (c *call) stillMember() bool {
	v, ok, err := c.Site.VisitorNow(c.r)
	if err != nil || !ok {
		return false
	}
	a, err := c.Members.Actor(c.ctx(), v.User.ID, c.team.TeamID)
	return err == nil && a.Scopes.Has(teams.EmailsRead)
}

func writeLive(w http.ResponseWriter, text string) error {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Now().Add(liveWriteTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return rc.Flush()
}
