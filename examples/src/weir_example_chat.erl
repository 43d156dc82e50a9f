%% @doc A chat: a page for browsers, `GET /messages' as an event stream, and `POST /messages' to say something. A
%% client that reconnects gets the messages that it missed.
-module(weir_example_chat).
-behaviour(weir_http_direct).
-behaviour(weir_http_events).

-export([start/1]).

-export([handle/2]).
-export([open/2]).

%% Number of messages that are kept for new clients, and the maximum bytes of one.
-define(KEPT, 100).
-define(MOST, 1000).

%% @doc Starts the server. `port' is the port to listen on (default 0: a free one); of `listen' only the address is
%% used.
-spec start(#{port => inet:port_number(), listen => [gen_tcp:listen_option()], _ => _}) ->
    {ok, weir_example_reactors:server()} | {error, term()}.
start(Options) ->
    Room = spawn_link(fun() ->
        {ok, Group} = weir_group:new(#{policy => disconnect}),
        room(Group, [])
    end),
    Stop = fun() -> Room ! stop end,
    Routes = [{"/", ?MODULE, page}, {"/messages", ?MODULE, Room, #{max_body => ?MOST}}],
    weir_example_broadcaster:serve(Stop, weir_example_http_server:start(Options, Routes)).

-spec handle(weir_http_request:request(), page | pid()) -> weir_http_direct:result().
handle(_Request, page) ->
    {reply, 200, [{<<"content-type">>, <<"text/html; charset=utf-8">>}], page()};
handle(Request, Room) ->
    case weir_http_request:method(Request) of
        <<"POST">> ->
            Room ! {say, binary:copy(weir_http_request:body(Request))},
            {reply, 204, [], <<>>};
        _ ->
            {events, ?MODULE, {Room, last(weir_http_request:field(<<"last-event-id">>, Request, <<"0">>))}}
    end.

last(Id) ->
    try binary_to_integer(Id)
    catch error:badarg -> 0
    end.

-spec open(weir_http_events:stream(), {pid(), integer()}) -> weir_http_events:result({pid(), integer()}).
open(Stream, {Room, Last}) ->
    Room ! {enter, Stream, Last},
    {ok, {Room, Last}}.

%% One process sends everything, so a client gets missed messages before new ones, and none twice.
room(Group, Messages) ->
    receive
        {say, Text} ->
            Number = newest(Messages) + 1,
            Frame = weir_http_events:frame(#{id => integer_to_binary(Number), data => Text}),
            _ = weir_group:broadcast(Group, Frame),
            room(Group, lists:sublist([{Number, Frame} | Messages], ?KEPT));
        {enter, Stream, Last} ->
            %% A client that has already left does not become a member.
            _ = gen_tcp:send(Stream, [Frame || {Number, Frame} <- lists:reverse(Messages), Number > Last]),
            _ = weir_group:join(Group, Stream),
            room(Group, Messages);
        stop ->
            ok
    end.

newest([{Number, _} | _]) -> Number;
newest([]) -> 0.

page() ->
    <<"<!doctype html><title>Chat</title>\n"
    "<form><input name=text autofocus autocomplete=off> <button>Say</button></form><ul></ul>\n"
    "<script>\n"
    "const [form, list] = [document.querySelector('form'), document.querySelector('ul')];\n"
    "new EventSource('messages').onmessage = event => {\n"
    "    const item = document.createElement('li');\n"
    "    item.textContent = event.data;\n"
    "    list.prepend(item);\n"
    "};\n"
    "form.onsubmit = event => {\n"
    "    event.preventDefault();\n"
    "    fetch('messages', {method: 'POST', body: form.text.value});\n"
    "    form.reset();\n"
    "};\n"
    "</script>\n">>.
