package engine

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
)

// fullShare is 100 percent in hundredths of a percent, the unit of branch.share.
const fullShare = 100 * 100

// split is the config of a step that distributes runs among branches by percentage.
type split struct{ branches []branch }

type branch struct {
	name  string
	share int // in hundredths of a percent
}

func readSplit(o jsonread.Object) (config, error) {
	items, err := o.List("branches")
	if err != nil {
		return nil, err
	}
	path := o.At("branches")
	if len(items) < 2 || len(items) > MaxBranches {
		return nil, jsonread.Invalidf(path, "has %d branches; a split has 2 to %d.", len(items), MaxBranches)
	}
	c := split{}
	total := 0
	for i, text := range items {
		b, err := readBranch(fmt.Sprintf("%s[%d]", path, i), text, c.branches)
		if err != nil {
			return nil, err
		}
		c.branches = append(c.branches, b)
		total += b.share
	}
	if total != fullShare {
		return nil, jsonread.Invalidf(path, "has percents that add up to %v. They must add up to 100.", float64(total)/100)
	}
	return c, nil
}

func readBranch(path string, text jsontext.Value, before []branch) (b branch, err error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return b, err
	}
	if b.name, err = o.Required("name", MaxKey); err != nil {
		return b, err
	}
	at := o.At("name")
	if slices.Contains([]string{Default, ConditionMet, ConditionNotMet, EventReceived, TimedOut}, b.name) {
		return b, jsonread.Invalidf(at, "is %s, which is another type of connection. Choose another name.",
			jsonread.Quote(b.name))
	}
	if slices.ContainsFunc(before, func(other branch) bool { return other.name == b.name }) {
		return b, jsonread.Invalidf(at, "is %s, as that of another branch. Choose another name.", jsonread.Quote(b.name))
	}
	if !o.Has("percent") {
		return b, fault.MissingField(o.At("percent"))
	}
	n, err := jsonread.Number(o.At("percent"), o.Members["percent"])
	if err != nil {
		return b, err
	}
	if b.share = int(math.Round(n * 100)); b.share <= 0 || b.share > fullShare || math.Abs(n*100-float64(b.share)) > 1e-6 {
		return b, jsonread.Invalidf(o.At("percent"), "must be more than 0 and at most 100, with at most two decimals.")
	}
	return b, nil
}

func (c split) exits() (all []string) {
	for _, b := range c.branches {
		all = append(all, b.name)
	}
	return all
}

func (c split) check(*Graph, string) error    { return nil }
func (c split) references(string) []Reference { return nil }

// plan chooses the branch by a hash of the run id and the step key. The choice is therefore the same every time that
// the step is planned, and the choices at consecutive splits are independent.
func (c split) plan(m *stepContext) (Action, error) {
	sum := sha256.Sum256([]byte(m.run.ID + "\x00" + m.step.Key))
	at := int(binary.BigEndian.Uint64(sum[:8]) % fullShare)
	for _, b := range c.branches {
		if at -= b.share; at < 0 {
			return Action{Branch: b.name, Output: map[string]any{"branch": b.name}}, nil
		}
	}
	panic("engine: the branches of a split add up to less than 100 percent")
}

func (c split) jsonValue() any {
	type written struct {
		Name    string  `json:"name"`
		Percent float64 `json:"percent"`
	}
	all := []written{}
	for _, b := range c.branches {
		all = append(all, written{b.name, float64(b.share) / 100})
	}
	return map[string]any{"branches": all}
}
