package tracking_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/sending/tracking"
)

// Bots are recognized by their requests, and people are not mistaken for bots.
func TestMachines(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		const outlook = "Mozilla/4.0 (compatible; ms-office; MSOffice 16)"
		for _, x := range []struct {
			name string
			hit  tracking.Hit
			want tracking.Reason
		}{
			{"a browser", tracking.Hit{URL: target, UserAgent: firefox}, ""},
			{"a browser's open", tracking.Hit{UserAgent: firefox}, ""},
			{"Gmail's proxy", tracking.Hit{UserAgent: "Mozilla/5.0 (Windows NT 5.1; rv:11.0) Gecko Firefox/11.0 " +
				"(via ggpht.com GoogleImageProxy)"}, ""},
			{"Outlook", tracking.Hit{UserAgent: outlook}, ""},
			{"a mail program without a name", tracking.Hit{}, ""},
			{"a phone called Cubot", tracking.Hit{URL: target, UserAgent: "Mozilla/5.0 (Linux; Android 13; CUBOT X70)"}, ""},
			{"a click without a name", tracking.Hit{URL: target}, tracking.ByUserAgent},
			{"Slack", tracking.Hit{URL: target, UserAgent: "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"},
				tracking.ByUserAgent},
			{"Bing", tracking.Hit{URL: target, UserAgent: "Mozilla/5.0 (compatible; bingbot/2.0)"}, tracking.ByUserAgent},
			{"a script", tracking.Hit{URL: target, UserAgent: "python-requests/2.32"}, tracking.ByUserAgent},
			{"curl", tracking.Hit{URL: target, UserAgent: "curl/8.5.0"}, tracking.ByUserAgent},
			{"Go", tracking.Hit{URL: target, UserAgent: "Go-http-client/2.0"}, tracking.ByUserAgent},
			{"Office", tracking.Hit{URL: target, UserAgent: "Microsoft Office Existence Discovery"}, tracking.ByUserAgent},
			{"WhatsApp", tracking.Hit{URL: target, UserAgent: "WhatsApp/2.23.20.0 A"}, tracking.ByUserAgent},
			{"Apple Mail", tracking.Hit{UserAgent: "Mozilla/5.0"}, tracking.ByPrefetch},
			{"a browser in advance", tracking.Hit{URL: target, UserAgent: firefox, Prefetch: true}, tracking.ByPrefetch},
			{"a filter", tracking.Hit{URL: target, UserAgent: firefox, Addr: netip.MustParseAddr("104.47.3.7")},
				tracking.ByAddress},
			{"a filter by IPv6", tracking.Hit{URL: target, UserAgent: firefox,
				Addr: netip.MustParseAddr("2a01:111:f403::7")}, tracking.ByAddress},
		} {
			emailID := c.delivered(time.Hour, "ann@one.example")
			if x.hit.Ref = c.Ref(emailID); !x.hit.Addr.IsValid() {
				x.hit.Addr = home
			}
			c.Add(x.hit)
			c.flush()
			all := c.hits(emailID)
			if len(all) != 1 || all[0].MachineReason != string(x.want) || all[0].Machine != (x.want != "") {
				t.Errorf("%s: %+v, want %q", x.name, all, x.want)
			}
		}
	})
}

// TestRightAfterDelivery: a hit right after the delivery is attributed to a scanner, as long as the time of the
// delivery is known.
func TestRightAfterDelivery(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		// A delivery time an hour in the future makes every hit early, because no test runs for an hour.
		for name, x := range map[string]struct {
			ago  time.Duration
			want tracking.Reason
		}{"just now": {-time.Hour, tracking.ByTiming}, "an hour ago": {time.Hour, ""}} {
			emailID := c.delivered(x.ago, "ann@one.example")
			for range 2 { // the first hit changes the recipient's state and records when it changed
				c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: target, Addr: home, UserAgent: firefox})
				c.flush()
			}
			c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: target, Addr: home, UserAgent: "curl/8"})
			c.flush()
			all := c.hits(emailID)
			if len(all) != 3 || all[0].MachineReason != string(x.want) || all[1].MachineReason != string(x.want) ||
				all[2].MachineReason != string(tracking.ByUserAgent) {
				t.Errorf("%s: %+v", name, all)
			}
		}
	})
}

// A client that follows several links within seconds is a bot. The client's earlier hits are also marked as bot hits if
// they are not yet recorded.
func TestBursts(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		links := []string{"https://a.example/", "https://b.example/", "https://c.example/"}
		click := func(emailID, link string, from netip.Addr) {
			c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: link, Addr: from, UserAgent: firefox})
		}
		reasons := func(emailID string) (all string) {
			for _, h := range c.hits(emailID) {
				all += h.MachineReason + " "
			}
			return all
		}

		all := c.delivered(time.Hour, "ann@one.example")
		c.Add(tracking.Hit{Ref: c.Ref(all), Addr: home, UserAgent: firefox})
		for _, link := range links {
			click(all, link, home)
		}
		c.flush()
		click(all, links[0], home)
		click(all, links[0], netip.MustParseAddr("198.51.100.1"))
		c.flush()
		if got, want := reasons(all), "burst burst burst burst burst  "; got != want {
			t.Errorf("all links: %q, want %q", got, want)
		}

		same := c.delivered(time.Hour, "ann@one.example")
		for range 5 {
			click(same, links[0], home)
		}
		c.flush()
		if got, want := reasons(same), "     "; got != want {
			t.Errorf("one link several times: %q, want %q", got, want)
		}

		apart := c.delivered(time.Hour, "ann@one.example")
		for i, from := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1"} {
			click(apart, links[i], netip.MustParseAddr(from))
		}
		c.flush()
		if got, want := reasons(apart), "   "; got != want {
			t.Errorf("by several clients: %q, want %q", got, want)
		}

		network := c.delivered(time.Hour, "ann@one.example")
		for i, from := range []string{"2001:db8::1", "2001:db8::2", "2001:db8::3"} {
			click(network, links[i], netip.MustParseAddr(from))
		}
		c.flush()
		if got, want := reasons(network), "burst burst burst "; got != want {
			t.Errorf("from one network: %q, want %q", got, want)
		}

		head := c.delivered(time.Hour, "ann@one.example")
		c.Add(tracking.Hit{Ref: c.Ref(head), URL: links[0], Addr: home, UserAgent: firefox, Head: true})
		click(head, links[0], home)
		c.flush()
		if got, want := reasons(head), "head "; got != want {
			t.Errorf("after HEAD: %q, want %q", got, want)
		}
	})
}
