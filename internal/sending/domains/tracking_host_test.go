package domains_test

import (
	"testing"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// AddVerified enables tracking immediately, even for an existing domain without a tracking subdomain.
func TestVerifiedDomainTracks(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		for _, name := range []string{testnode.Domain, "shop.example"} {
			d := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: name, TrackingSubdomain: "links"})
			if d.TrackingHost() != "links."+name {
				t.Errorf("%s: links at %q", name, d.TrackingHost())
			}
			if err := n.Domains.Update(t.Context(), n.Acme.TeamID, d.ID, domains.Change{ClickTracking: new(true)}); err != nil {
				t.Fatal(err)
			}
			from, err := n.Domains.Sender(t.Context(), n.Acme.TeamID, name)
			want := domains.Tracking{Host: "links." + name, Clicks: true}
			if err != nil || from.Tracking != want {
				t.Errorf("%s: tracks %+v, %v, want %+v", name, from.Tracking, err, want)
			}
			if tracks, err := n.Domains.IsTrackingHost(t.Context(), "links."+name); err != nil || !tracks {
				t.Errorf("%s: %v, %v", name, tracks, err)
			}
		}
		again := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: testnode.Domain, TrackingSubdomain: "go"})
		if again.TrackingHost() != "links."+testnode.Domain {
			t.Errorf("links at %q", again.TrackingHost())
		}
	})
}

// The cache of tracking hosts has a maximum size and is cleared when a domain changes.
func TestTracksForgets(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const host = "links.shop.example"
		for _, want := range []bool{false, true} {
			if tracks, err := n.Domains.IsTrackingHost(t.Context(), host); err != nil || tracks != want {
				t.Errorf("%v, %v, want %v", tracks, err, want)
			}
			n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "shop.example", TrackingSubdomain: "links"})
		}
		n.Update(func(tx *db.Tx) error { // changes the row without sending a hint
			tx.Queue(t.Context(), `UPDATE domains SET tracking_subdomain = 'go', old_tracking = ''
				WHERE name = 'shop.example'`)
			return nil
		})
		testnode.Until(t, "what is remembered is looked up again", func() bool {
			tracks, err := n.Domains.IsTrackingHost(t.Context(), host)
			return err == nil && !tracks
		})
	})
}

// Once it has been verified, a tracking subdomain keeps working even after the setting changes. If a former tracking
// subdomain is set again, it works even before it is verified, and also after another change.
func TestTrackingSubdomainTakenUpAgain(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const name = "shop.example"
		d := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: name, TrackingSubdomain: "links"})
		works := func(after, label string, want bool) {
			t.Helper()
			host := label + "." + name
			if tracks, err := n.Domains.IsTrackingHost(t.Context(), host); err != nil || tracks != want {
				t.Errorf("%s: %s tracks: %v, %v, want %v", after, host, tracks, err, want)
			}
			registered := n.Count(`SELECT COUNT(*) FROM domain_names WHERE name = $1 AND domain_id = $2`, host,
				db.ID(d.ID))
			if (registered == 1) != want {
				t.Errorf("%s: %s is registered %d times", after, host, registered)
			}
		}
		change := func(label string) {
			t.Helper()
			err := n.Domains.Update(t.Context(), n.Acme.TeamID, d.ID, domains.Change{TrackingSubdomain: &label})
			if err != nil {
				t.Fatal(err)
			}
		}
		change("track")
		works("track is not verified", "links", true)
		works("track is not verified", "track", false)
		n.Verified(n.Acme.TeamID, domains.NewDomain{Name: name, TrackingSubdomain: "track"})
		for _, label := range []string{"links", "track", "", "links", "never", "track"} {
			change(label)
			works("changed to "+label, "links", true)
			works("changed to "+label, "track", true)
		}
		n.Verified(n.Acme.TeamID, domains.NewDomain{Name: name, TrackingSubdomain: "track"})
		works("track is verified again", "links", true)
		works("track is verified again", "track", true)
		works("never was not verified", "never", false)
	})
}

// Tracking that is on but inactive has a reason. With the operator's tracking URL, every domain whose proof was found
// is tracked, even without a host of its own.
func TestWhyTrackingIsInactive(t *testing.T) {
	for url, host := range map[string]string{"": "", "https://Track.postrider.test:8443/t": "track.postrider.test"} {
		t.Run("URL "+url, func(t *testing.T) {
			testnode.Each(t, testnode.Options{TrackingURL: url}, func(t *testing.T, n *testnode.Node) {
				check := func(d domains.Domain, reason, own string) {
					t.Helper()
					want := domains.Tracking{Host: own, Clicks: own != ""}
					if host != "" {
						reason, want = "", domains.Tracking{Host: host, Clicks: true}
					}
					if got := n.Domains.TrackingInactive(&d); got != reason {
						t.Errorf("tracking is inactive because of %q, want %q", got, reason)
					}
					if got := n.Domains.Tracking(&d); got != want {
						t.Errorf("it tracks %+v, want %+v", got, want)
					}
					from, err := n.Domains.Sender(t.Context(), n.Acme.TeamID, d.Name)
					if err != nil || from.Tracking != want {
						t.Errorf("its emails track %+v, %v, want %+v", from.Tracking, err, want)
					}
				}
				change := func(d domains.Domain, c domains.Change) domains.Domain {
					t.Helper()
					n.Must(n.Domains.Update(t.Context(), n.Acme.TeamID, d.ID, c))
					d, err := n.Domains.Get(t.Context(), n.Acme.TeamID, d.ID)
					n.Must(err)
					return d
				}
				d := n.Sender
				if got := n.Domains.TrackingInactive(&d); got != "" {
					t.Errorf("without tracking: %q", got)
				}
				d = change(d, domains.Change{ClickTracking: new(true)})
				check(d, domains.NoTrackingSubdomain, "")
				d = change(d, domains.Change{TrackingSubdomain: new("links")})
				check(d, domains.TrackingRecordNotVerified, "")
				d = n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "shop.example", TrackingSubdomain: "links",
					ClickTracking: true})
				check(d, "", "links.shop.example")
				c := domains.Config{TrackingURL: url}
				if got := c.Tracking(&d); got != (domains.Tracking{Host: "links.shop.example", Clicks: true}) {
					t.Errorf("with a host of its own, which DNS has confirmed, it tracks %+v", got)
				}
				unproved, err := n.Domains.Create(t.Context(), n.Acme.TeamID, domains.NewDomain{Name: "new.example",
					OpenTracking: true})
				n.Must(err)
				if got := n.Domains.Tracking(&unproved); got != (domains.Tracking{}) {
					t.Errorf("a domain without a proof tracks %+v", got)
				}
			})
		})
	}
}
