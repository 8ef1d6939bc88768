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
			registered := n.Count(`SELECT COUNT(*) FROM domain_names WHERE name = $1 AND domain_id = $2`, host, d.ID)
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
