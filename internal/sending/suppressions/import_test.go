package suppressions_test

import (
	"testing"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// Import adds entries with their origins, keeps existing entries, and records no events. A dry import adds nothing.
func TestImport(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		ctx, team := t.Context(), n.Acme.TeamID
		if _, err := n.Suppressions.Add(ctx, team, []string{"ann@example.net"}); err != nil {
			t.Fatal(err)
		}
		var seen testnode.Seen
		n.Recorder.Listen(&seen)
		entries := []suppressions.Imported{{Address: "Ann@example.net", Origin: suppressions.Bounce},
			{Address: "Bob <bob@example.net>", Origin: suppressions.Complaint},
			{Address: "bob@example.net", Origin: suppressions.Manual}, {Address: "nobody", Origin: suppressions.Manual},
			{Address: "cleo@example.net", Origin: "magic"}}
		for _, dry := range []bool{true, false} {
			got := testnode.Must(n.Suppressions.Import(ctx, team, entries, dry))
			if got[0].Existing.Origin != suppressions.Manual || got[1].Err != nil || got[1].Existing.Address != "" ||
				got[2].Existing.Address != "bob@example.net" || got[3].Err == nil || got[4].Err == nil {
				t.Errorf("dry %v: %+v", dry, got)
			}
			want := 2
			if dry {
				want = 1
			}
			if all := n.Count(`SELECT COUNT(*) FROM suppressions`); all != want {
				t.Errorf("dry %v: %d entries", dry, all)
			}
		}
		bob := testnode.Must(n.Suppressions.Get(ctx, team, "bob@example.net"))
		if bob.Origin != suppressions.Complaint || bob.SourceID != "" {
			t.Errorf("Bob is %+v", bob)
		}
		if again := testnode.Must(n.Suppressions.Import(ctx, team, entries, false)); again[1].Existing.ID != bob.ID {
			t.Errorf("again: %+v", again)
		}
		if all := seen.Take(); len(all) > 0 {
			t.Errorf("recorded %v", all)
		}
	})
}
