package dmarc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dmarc"
)

func TestParse(t *testing.T) {
	t.Parallel()
	mail := []string{"mailto:a@b.example"}
	for text, want := range map[string]dmarc.Record{
		"v=DMARC1":                               {Invalid: true},
		"v=DMARC1;":                              {Invalid: true},
		"v=DMARC1;p=none":                        {P: dmarc.None},
		"v=DMARC1; p=quarantine;":                {P: dmarc.Quarantine},
		"v=DMARC1\t;\tp\t=\treject\t":            {P: dmarc.Reject},
		"v \t= DMARC1 ;; p=REJECT ; ;":           {P: dmarc.Reject},
		"v=DMARC1; sp=none; np=reject; p=REJECT": {P: dmarc.Reject, SP: dmarc.None, NP: dmarc.Reject},
		"v=DMARC1; p=reject; adkim=s":            {P: dmarc.Reject, StrictDKIM: true},
		"v=DMARC1; p=reject; aspf=S; adkim=r":    {P: dmarc.Reject, StrictSPF: true},
		"v=DMARC1; p=reject; adkim=x; aspf=":     {P: dmarc.Reject},
		"v=DMARC1; p=none; psd=y; t=y":           {P: dmarc.None, PSD: dmarc.SuffixYes, Testing: true},
		"v=DMARC1; p=none; psd=N; t=n":           {P: dmarc.None, PSD: dmarc.SuffixNo},
		"v=DMARC1; p=none; psd=u; t=maybe":       {P: dmarc.None},
		"v=DMARC1; p=none; psd=yes":              {P: dmarc.None},
		"v=DMARC1; p=block":                      {Invalid: true},
		"v=DMARC1; p=none; sp=block":             {P: dmarc.None, Invalid: true},
		"v=DMARC1; p=none; np=block":             {P: dmarc.None, Invalid: true},
		"v=DMARC1; p=none; sp=":                  {P: dmarc.None},
		"v=DMARC1; p=none; sp":                   {P: dmarc.None},
		"v=DMARC1; p=no\x00ne":                   {Invalid: true},
		"v=DMARC1; p=réject":                     {Invalid: true},
		"v=DMARC1; P=reject":                     {Invalid: true}, // tags are case-sensitive (RFC 6376 section 3.2)
		"v=DMARC1; p=reject; p=none":             {P: dmarc.Reject},
		// RFC 9989 removed these tags, and receivers ignore them.
		"v=DMARC1; p=reject; pct=0; rf=afrf; ri=5": {P: dmarc.Reject},
		"v=DMARC1; p=none; unknown=1; =; p2=x":     {P: dmarc.None},
		"v=DMARC1; p=none; rua=mailto:a@b.example": {P: dmarc.None, RUA: mail},
		"v=DMARC1; p=none; rua= MAILTO:a@b.example!10m , https://c.example/d": {P: dmarc.None,
			RUA: []string{"MAILTO:a@b.example", "https://c.example/d"}},
		"v=DMARC1; p=none; rua=a@b.example, mailto:, mailto:@b, mailto:a@, https:, :x, %, mailto:a@b.example": {
			P: dmarc.None, RUA: mail},
		"v=DMARC1; p=none; rua=mailto:ü@b.example": {P: dmarc.None},
		"v=DMARC1; rua=mailto:a@b.example":         {Invalid: true, RUA: mail},
	} {
		got, ok := dmarc.Parse(text)
		if diff := cmp.Diff(want, got); diff != "" || !ok {
			t.Errorf("%q: %v\n%s", text, ok, diff)
		}
	}
}

func TestParseOtherRecords(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", ";", "v", "v=", "v=DMARC", "v=DMARC10; p=none", "v=dmarc1; p=none",
		"V=DMARC1; p=none",
		"v=DMARC1 p=none", "v=DMARC1, p=none", " v=DMARC1; p=none", "p=none; v=DMARC1", "v=spf1 -all", "v\n=DMARC1;",
		"\"v=DMARC1; p=none\"", "v=DMARC2; p=none", "w=DMARC1; p=none", ";v=DMARC1; p=none"} {
		if r, ok := dmarc.Parse(text); ok {
			t.Errorf("%q is read as %+v", text, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("v=DMARC1; p=reject; sp=none; np=quarantine; psd=y; t=y; adkim=s; aspf=s; rua=mailto:a@b.example!1k,https://c/d")
	f.Add("v = DMARC1;;p=x; =; rua=,;\x00=\xff")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := dmarc.Parse(text)
		if !ok {
			if diff := cmp.Diff(dmarc.Record{}, r); diff != "" {
				t.Error(diff)
			}
			return
		}
		for _, p := range []dmarc.Policy{r.P, r.SP, r.NP} {
			if p != "" && p != dmarc.None && p != dmarc.Quarantine && p != dmarc.Reject {
				t.Errorf("policy %q", p)
			}
		}
		if !strings.HasPrefix(text, "v") || r.P == "" && !r.Invalid || r.PSD != "" && r.PSD != "y" && r.PSD != "n" {
			t.Errorf("%+v", r)
		}
		for _, uri := range r.RUA {
			if !strings.Contains(uri, ":") || strings.ContainsAny(uri, ",!;") {
				t.Errorf("URI %q", uri)
			}
		}
	})
}
