-module(weir_http_routes_tests).

-include_lib("eunit/include/eunit.hrl").
-include("../src/weir_http.hrl").

-define(HANDLER, weir_http_echo).

routes(Descriptions) ->
    {ok, Routes} = weir_http_routes:new(Descriptions),
    Routes.

find(Method, Path, Descriptions) ->
    IsPlain = binary:match(Path, [<<"%">>, <<"//">>, <<"/.">>]) =:= nomatch,
    Flags = if IsPlain -> ?PLAIN_PATH; true -> 0 end,
    Request = weir_http_request:new({Method, Path, undefined, <<>>, Flags, 0, 0}, socket, undefined, undefined),
    case weir_http_routes:find(Method, Request, routes(Descriptions)) of
        {ok, #{state := State}, Bindings} -> {State, Bindings};
        Other -> Other
    end.

get(Path, Descriptions) -> find(<<"GET">>, Path, Descriptions).

literals_come_before_bindings_and_these_before_wildcards_test() ->
    Routes = [
        {"/*all", ?HANDLER, wildcard},
        {"/a/:b", ?HANDLER, binding},
        {"/a/b", ?HANDLER, literal},
        {"/:a/b/c", ?HANDLER, later}
    ],
    ?assertEqual({literal, #{}}, get(<<"/a/b">>, Routes)),
    ?assertEqual({literal, #{}}, get(<<"/a/%62">>, Routes)),
    ?assertEqual({binding, #{b => <<"c">>}}, get(<<"/a/c">>, Routes)),
    %% The branch that matches better at first leads nowhere.
    ?assertEqual({later, #{a => <<"a">>}}, get(<<"/a/b/c">>, Routes)),
    ?assertEqual({wildcard, #{all => [<<"a">>, <<"b">>, <<"d">>]}}, get(<<"/a/b/d">>, Routes)),
    ?assertEqual({wildcard, #{all => [<<>>]}}, get(<<"/">>, Routes)),
    ?assertEqual({wildcard, #{all => [<<"a">>, <<>>]}}, get(<<"/a/">>, Routes)).

slashes_are_not_made_up_test() ->
    Routes = [{"/a", ?HANDLER, without}, {"/b/", ?HANDLER, with}],
    ?assertEqual({without, #{}}, get(<<"/a">>, Routes)),
    ?assertEqual({status, 404}, get(<<"/a/">>, Routes)),
    ?assertEqual({status, 404}, get(<<"/b">>, Routes)),
    ?assertEqual({status, 404}, get(<<"//a">>, Routes)).

methods_of_one_path_test() ->
    Routes = [
        {"/a", ?HANDLER, get, #{methods => [<<"GET">>]}},
        {"/a", ?HANDLER, put, #{methods => [<<"PUT">>]}},
        {"/b/:c", ?HANDLER, post, #{methods => [<<"POST">>]}},
        {"/b/*d", ?HANDLER, wildcard, #{methods => [<<"GET">>]}},
        {"/own", ?HANDLER, own, #{methods => [<<"OPTIONS">>, <<"PURGE">>]}}
    ],
    ?assertEqual({get, #{}}, find(<<"HEAD">>, <<"/a">>, Routes)),
    ?assertEqual({put, #{}}, find(<<"PUT">>, <<"/a">>, Routes)),
    ?assertEqual({allow, 405, <<"GET, HEAD, PUT, OPTIONS">>}, find(<<"POST">>, <<"/a">>, Routes)),
    ?assertEqual({allow, 204, <<"GET, HEAD, PUT, OPTIONS">>}, find(<<"OPTIONS">>, <<"/a">>, Routes)),
    ?assertEqual({wildcard, #{d => [<<"x">>]}}, get(<<"/b/x">>, Routes)),
    ?assertEqual({allow, 405, <<"POST, GET, HEAD, OPTIONS">>}, find(<<"PUT">>, <<"/b/x">>, Routes)),
    ?assertEqual({own, #{}}, find(<<"OPTIONS">>, <<"/own">>, Routes)),
    ?assertEqual({own, #{}}, find(<<"PURGE">>, <<"/own">>, Routes)),
    ?assertEqual({status, 404}, find(<<"PUT">>, <<"/c">>, Routes)),
    ?assertMatch({allow, 200, _}, find(<<"OPTIONS">>, <<"*">>, Routes)).

constraints_test() ->
    Even = fun(Text) ->
        case byte_size(Text) rem 2 of
            0 -> {ok, {even, Text}};
            1 -> error
        end
    end,
    Routes = [
        {"/:n", ?HANDLER, number, #{constraints => #{n => integer}}},
        {"/:n", ?HANDLER, even, #{constraints => #{n => Even}}},
        {"/:n", ?HANDLER, any}
    ],
    ?assertEqual({number, #{n => 7}}, get(<<"/007">>, Routes)),
    ?assertEqual({even, #{n => {even, <<"ab">>}}}, get(<<"/ab">>, Routes)),
    [
        ?assertEqual({any, #{n => Text}}, get(<<"/", Text/binary>>, Routes))
     || Text <- [<<"abc">>, <<"+12">>, <<"-12">>, <<"1.5">>]
    ],
    ?assertEqual({any, #{n => <<"1234567890123456789">>}}, get(<<"/1234567890123456789">>, Routes)).

dots_test() ->
    Routes = [{"/a/b", ?HANDLER, found}, {"/a/", ?HANDLER, directory}],
    [?assertEqual({found, #{}}, get(Path, Routes), Path)
     || Path <- [<<"/a/./b">>, <<"/./a/b">>, <<"/x/../a/b">>, <<"/a/x/../b">>, <<"/%2e/a/b">>, <<"/x/%2E%2e/a/b">>]],
    [?assertEqual({directory, #{}}, get(Path, Routes), Path) || Path <- [<<"/a/.">>, <<"/a/b/..">>, <<"/a/b/%2e%2E">>]],
    [?assertEqual({status, 400}, get(Path, Routes), Path) || Path <- [<<"/..">>, <<"/a/../..">>, <<"/../a/b">>]],
    %% Three dots are an ordinary name.
    ?assertEqual({status, 404}, get(<<"/.../a/b">>, Routes)).

literals_may_be_encoded_test() ->
    Routes = [{"/caf\x{e9}", ?HANDLER, e_acute}, {"/a%20b", ?HANDLER, space}],
    ?assertEqual({e_acute, #{}}, get(<<"/caf%C3%A9">>, Routes)),
    ?assertEqual({space, #{}}, get(<<"/a%20b">>, Routes)).

what_is_wrong_is_said_test() ->
    [
        ?assertMatch({error, {bad_option, routes, _, [_ | _]}}, weir_http_routes:new(Wrong))
     || Wrong <- [
            nothing,
            [nothing],
            [{"a", ?HANDLER, []}],
            [{a, ?HANDLER, []}],
            [{"/a", no_such_module, []}],
            [{"/a", "handler", []}],
            [{"/:a/:a", ?HANDLER, []}],
            [{"/*a/b", ?HANDLER, []}],
            [{"/a", ?HANDLER, [], #{methods => []}}],
            [{"/a", ?HANDLER, [], #{methods => [get]}}],
            [{"/a", ?HANDLER, [], #{method => [<<"GET">>]}}],
            [{"/a", ?HANDLER, [], #{max_body => -1}}],
            [{"/a", ?HANDLER, [], #{constraints => #{b => integer}}}],
            [{"/:a", ?HANDLER, [], #{constraints => #{a => float}}}]
        ]
    ].
