package domains_test

import (
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/testnode"
)

// A domain that is added verified tracks at once, also one that was there without a tracking subdomain.
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
			if tracks, err := n.Domains.Tracks(t.Context(), "links."+name); err != nil || !tracks {
				t.Errorf("%s: %v, %v", name, tracks, err)
			}
		}
		again := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: testnode.Domain, TrackingSubdomain: "go"})
		if again.TrackingHost() != "links."+testnode.Domain {
			t.Errorf("links at %q", again.TrackingHost())
		}
	})
}

// What is remembered of tracking hosts is bounded, and forgotten when a domain changes.
func TestTracksForgets(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const host = "links.shop.example"
		for _, want := range []bool{false, true} {
			if tracks, err := n.Domains.Tracks(t.Context(), host); err != nil || tracks != want {
				t.Errorf("%v, %v, want %v", tracks, err, want)
			}
			n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "shop.example", TrackingSubdomain: "links"})
		}
		n.Update(func(tx *db.Tx) error { // behind the back of the node
			tx.Queue(t.Context(), `UPDATE domains SET tracking_subdomain = 'go' WHERE name = 'shop.example'`)
			return nil
		})
		testnode.Until(t, "what is remembered is looked up again", func() bool {
			tracks, err := n.Domains.Tracks(t.Context(), host)
			return err == nil && !tracks
		})
	})
}
