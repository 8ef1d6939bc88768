package emails

import (
	"testing"

	"github.com/postrider/postrider/internal/mail/message"
)

func TestIsBulk(t *testing.T) {
	for _, c := range []struct {
		name, value string
		bulk        bool
	}{
		{"Precedence", "bulk", true},
		{"precedence", " List ", true},
		{"Precedence", "junk", true},
		{"Precedence", "first-class", false},
		{"X-Precedence", "bulk", false},
		{"List-Id", "<news.acme.example>", true},
		{"List-Unsubscribe", "<https://acme.example/u>", true},
		{"List-Owner", "<mailto:a@acme.example>", false},
		{"X-Entity-Ref-ID", "1", false},
	} {
		header := []message.Field{{Name: "X-First", Value: "1"}, {Name: c.name, Value: c.value}}
		if isBulk(header) != c.bulk {
			t.Errorf("%s: %s is bulk: %v", c.name, c.value, !c.bulk)
		}
	}
	if isBulk(nil) {
		t.Error("without a header it is bulk")
	}
}

func TestLanes(t *testing.T) {
	for _, bulk := range []bool{false, true} {
		lane := Lane("example.net", "team", bulk)
		if Destination(lane) != "example.net" || LaneTeam(lane) != "team" || IsBulk(lane) != bulk {
			t.Errorf("%s leads to %s, is of %s, bulk %v", lane, Destination(lane), LaneTeam(lane), IsBulk(lane))
		}
	}
	if LaneTurn(Lane("d", "t", true)) == LaneTurn(Lane("d", "t", false)) {
		t.Error("bulk mail has the same turn as the rest")
	}
}
