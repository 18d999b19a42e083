package redistest

import (
	"context"
	"fmt"
)

func ExampleProxy() {
	server, err := Start(context.Background(), Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	proxy, err := StartProxy(server.Addr(), ProxyOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer proxy.Close()
	proxy.OnCommand(func(c Command) Action {
		if c.Name() == "SET" {
			return CutAfter // executed, but nobody learns of it
		}
		return Pass
	})
	client, err := Dial(context.Background(), proxy.Addr())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	_, err = client.Do("SET", "lock", "me")
	fmt.Println("the client knows nothing:", err != nil)
	fmt.Print("the server: ")
	fmt.Println(server.Do("GET", "lock"))
	// Output:
	// the client knows nothing: true
	// the server: me <nil>
}
