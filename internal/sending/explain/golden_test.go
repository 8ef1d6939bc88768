package explain

import (
	"os"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// goldenMin is the least number of replies in the golden set, and goldenShare the least share, in percent, that must be
// translated as expected.
const (
	goldenMin   = 200
	goldenShare = 98
)

// golden is a reply in testdata/replies.tsv.
type golden struct {
	provider evidence.Provider
	own      bool // Postrider wrote the reply
	stage    string
	want     ReplyMeaning // without sentences
	reply    string
}

func readGolden(t *testing.T) (all []golden) {
	t.Helper()
	text, err := os.ReadFile("testdata/replies.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		f := strings.Split(line, "\t")
		p, own := evidence.NotRecorded, strings.HasPrefix(f[0], "own")
		if len(f) == 7 {
			p = evidence.ProviderByName(strings.TrimPrefix(f[0], "own "))
		}
		if p == evidence.NotRecorded && !own {
			t.Fatalf("the golden set has the bad line %q", line)
		}
		all = append(all, golden{p, own, f[1], ReplyMeaning{Class: Class(f[2]), Blames: Identity(f[3]), Act: Actor(f[4]),
			Advice: Advice(f[5])}, f[6]})
	}
	return all
}

// Real replies are translated: class, blamed identity, who must act and advice.
func TestGoldenReplies(t *testing.T) {
	all, right := readGolden(t), 0
	for _, g := range all {
		got := Translate(g.provider, g.stage, g.reply, g.own, g.reply[0] == '5')
		if got.Says == "" || len(got.Advice.Steps()) == 0 || len(got.Advice.Steps()) > 3 {
			t.Errorf("%s: %+v has no sentence, or not one to three steps", g.reply, got)
		}
		got.Says, got.Published, got.Temporary = "", "", false
		if got == g.want {
			right++
		} else {
			t.Logf("%s at %s: %.100s\n\tgot  %v\n\twant %v", g.provider, g.stage, g.reply, got, g.want)
		}
	}
	for _, g := range all { // also after the last try, somebody must act on each
		got := Translate(g.provider, g.stage, g.reply, g.own, true)
		if got.Act == Nobody || len(got.Advice.Steps()) == 0 || got.Advice == Wait {
			t.Errorf("%s: after the last try, %s must act by %s", g.reply, got.Act, got.Advice)
		}
	}
	if len(all) < goldenMin || right*100 < goldenShare*len(all) {
		t.Errorf("%d of %d replies are translated as expected; %d %% of at least %d must be", right, len(all),
			goldenShare, goldenMin)
	}
}
