package redistest

import "testing"

// BenchmarkRoundTrip says what the proxy adds to a command.
func BenchmarkRoundTrip(b *testing.B) {
	s := New(b)
	p := NewProxy(b, s.Addr())
	for name, addr := range map[string]string{"direct": s.Addr(), "proxy": p.Addr()} {
		b.Run(name, func(b *testing.B) {
			c, err := Dial(b.Context(), addr)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			for b.Loop() {
				if _, err := c.Do("PING"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStart(b *testing.B) {
	for _, f := range Flavors() {
		b.Run(f, func(b *testing.B) {
			for b.Loop() {
				s, err := Start(b.Context(), Options{Binary: f})
				if err != nil {
					b.Fatal(err)
				}
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
