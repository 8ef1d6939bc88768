package tlsrpt_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

func TestFindRecord(t *testing.T) {
	t.Parallel()
	const v = "v=TLSRPTv1; "
	var many, manyWant []string
	for i := range 12 {
		if many = append(many, fmt.Sprintf("mailto:r%d@a.example", i)); i < 8 {
			manyWant = append(manyWant, many[i])
		}
	}
	for _, c := range []struct {
		records []string
		want    string // targets, separated by spaces; "" means that there is no usable record
		none    bool   // whether there is no record at all
	}{
		{[]string{v + "rua=mailto:reports@example.com"}, "mailto:reports@example.com", false},
		{[]string{"v=TLSRPTv1;rua=mailto:reports@example.com;"}, "mailto:reports@example.com", false},
		{[]string{"v=TLSRPTv1 ;\trua = mailto:a@example.com , https://r.example/v1 ; x=y;"},
			"mailto:a@example.com https://r.example/v1", false},
		{[]string{v + "x=y; rua=HTTPS://r.example/v1?a=b%2Cc#d"}, "https://r.example/v1?a=b%2Cc", false},
		{[]string{v + "rua=mailto:a%2Bb@EXAMPLE.com?subject=x"}, "mailto:a+b@example.com", false},
		{[]string{v + "rua=mailto:a@bücher.example"}, "mailto:a@xn--bcher-kva.example", false},
		{[]string{v + "rua=mailto:a@b.example; rua=https://r.example:8443"}, "mailto:a@b.example https://r.example:8443",
			false},
		{[]string{v + "rua=mailto:a@b.example,mailto:a@b.example"}, "mailto:a@b.example", false},
		{[]string{v + "rua=ftp://r.example,mailto:nobody,http://r.example,mailto:a@b.example"}, "mailto:a@b.example", false},
		{[]string{"v=spf1 -all", v + "rua=mailto:a@b.example", "other"}, "mailto:a@b.example", false},
		{[]string{"v=TLSRPTv10; rua=mailto:x@y.example", v + "rua=mailto:a@b.example"}, "mailto:a@b.example", false},
		{[]string{v + "rua=" + strings.Join(many, ",")}, strings.Join(manyWant, " "), false},
		{nil, "", true}, {[]string{"v=spf1 -all"}, "", true}, {[]string{" " + v + "rua=mailto:a@b.example"}, "", true},
		{[]string{"v=tlsrptv1; rua=mailto:a@b.example"}, "", true}, {[]string{"rua=mailto:a@b.example; v=TLSRPTv1"}, "", true},
		{[]string{v + "rua=mailto:a@b.example", v + "rua=mailto:a@b.example"}, "", false},
		{[]string{"v=TLSRPTv1"}, "", false}, {[]string{v}, "", false}, {[]string{v + "rua="}, "", false},
		{[]string{v + "rua=mailto:"}, "", false}, {[]string{v + "rua=https://"}, "", false},
		{[]string{v + "rua=https:///path"}, "", false}, {[]string{v + "rua=https://u:p@r.example"}, "", false},
		{[]string{v + "rua=https://r.example:/"}, "", false}, {[]string{v + "rua=mailto:a@b.example\x00"}, "", false},
		{[]string{v + "rua=mailto:a%0ab@b.example"}, "", false}, {[]string{v + "rua=mailto:a%@b.example"}, "", false},
		{[]string{v + "rua=mailto:a@b.example%2Cc@d.example"}, "", false}, {[]string{v + "rua"}, "", false},
		{[]string{v + ";rua=mailto:a@b.example"}, "", false}, {[]string{v + "-x=1; rua=mailto:a@b.example"}, "", false},
		{[]string{v + "rua=https://r.example/" + strings.Repeat("a", 2048)}, "", false},
		{[]string{v + "rua=mailto:a@b.example; x=" + strings.Repeat("a", 4096)}, "", false},
	} {
		r, err := tlsrpt.FindRecord(c.records)
		var got []string
		for _, target := range r.Targets {
			got = append(got, target.String())
		}
		if strings.Join(got, " ") != c.want || (err == nil) != (c.want != "") ||
			errors.Is(err, tlsrpt.ErrNoRecord) != c.none {
			t.Errorf("%.100q: %q, %v; want %q", c.records, got, err, c.want)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, text := range []string{"v=TLSRPTv1; rua=mailto:a%2Bb@b.example,https://r.example/v1?x#y; x=y;", "v=TLSRPTv1;rua="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := tlsrpt.ParseRecord(text)
		if (err == nil) != (len(r.Targets) > 0) || len(r.Targets) > 8 {
			t.Fatalf("%d targets, %v", len(r.Targets), err)
		}
		for _, target := range r.Targets {
			if (target.Address == "") == (target.URL == "") || strings.ContainsAny(target.String(), "\r\n\x00") ||
				target.URL != "" && !strings.HasPrefix(target.URL, "https://") {
				t.Errorf("the target %+v", target)
			}
		}
	})
}
